//! Certificates for servers of tests, signed by authorities of their own. `openssl` makes them.
//!
//! Called by tests that reach Redis by TLS.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use crate::child;
use crate::scratch::Scratch;

/// Nothing but what is asked for: the usual configuration makes every certificate one of an authority.
const CONFIG: &str = "[req]\ndistinguished_name = name\n[name]\n";

/// What all keys are.
const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// Signs certificates. Its files go when it is dropped.
#[derive(Debug)]
pub struct Authority {
    files: Scratch,
    made: AtomicU64,
}

/// A certificate and its key, as files.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Authority {
    /// A new one.
    ///
    /// # Panics
    /// When `openssl` is missing, as everything here.
    #[track_caller]
    pub fn new() -> Self {
        let authority = Self {
            files: Scratch::new("authority"),
            made: AtomicU64::new(0),
        };
        fs::write(authority.path("openssl.cnf"), CONFIG).expect("a file can be written");
        authority.make("ca", &["-addext", "basicConstraints=critical,CA:TRUE"]);
        authority
    }

    /// Its own certificate, which whoever trusts it needs.
    pub fn file(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// A file of those of several.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn with(&self, other: &Self) -> PathBuf {
        let read = |file: &Path| fs::read_to_string(file).expect("a certificate can be read");
        let both = self.path("both.crt");
        fs::write(&both, read(&self.file()) + &read(&other.file())).expect("a file can be written");
        both
    }

    /// A certificate for a server of these names, such as `DNS:localhost` or `IP:127.0.0.1`.
    #[track_caller]
    pub fn certificate(&self, names: &str) -> Certificate {
        let name = format!("server-{}", self.made.fetch_add(1, Ordering::Relaxed));
        let (names, ca, key) = (format!("subjectAltName={names}"), self.file(), self.path("ca.key"));
        let (ca, key) = (ca.display().to_string(), key.display().to_string());
        self.make(&name, &["-addext", &names, "-CA", &ca, "-CAkey", &key]);
        Certificate {
            cert: self.path(&format!("{name}.crt")),
            key: self.path(&format!("{name}.key")),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    #[track_caller]
    fn make(&self, name: &str, more: &[&str]) {
        let mut command = child::command("openssl");
        command.args(["req", "-x509", "-days", "30", "-config", "openssl.cnf"]);
        // No two authorities have one name: it is how a certificate says who signed it.
        let whose = self.files.path().file_name().map(|name| name.to_string_lossy());
        command
            .args(KEY)
            .args(["-subj", &format!("/CN={} {name}", whose.unwrap_or_default())]);
        command.args(["-out", &format!("{name}.crt"), "-keyout", &format!("{name}.key")]);
        command.args(more).current_dir(self.files.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let output: io::Result<_> = child::spawn(command).wait_with_output();
        let output = output.expect("openssl can be waited for");
        assert!(
            output.status.success(),
            "openssl ({}; install it: apt-get install openssl): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
