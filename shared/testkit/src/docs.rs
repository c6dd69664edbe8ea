//! Generated parts of documents: compared with what the code says, rewritten by `make bless`.

use std::path::PathBuf;
use std::{env, fs};

/// Compares the part of `docs/<page>` between `<!-- <name>: generated -->` and `<!-- end -->` with `generated`, or writes it there
/// when `BLESS=1`.
///
/// # Panics
/// When the part is missing or out of date.
#[track_caller]
#[expect(
    clippy::disallowed_methods,
    reason = "the kit does not know the platform's configuration"
)]
pub fn check_block(page: &str, name: &str, generated: &str) {
    let path = root().join("docs").join(page);
    let stored = fs::read_to_string(&path).unwrap_or_default();
    let begin = format!("<!-- {name}: generated -->\n");
    let Some((before, rest)) = stored.split_once(&begin) else {
        panic!("docs/{page} has no line {begin}");
    };
    let Some((block, after)) = rest.split_once("<!-- end -->") else {
        panic!("docs/{page}: the part {name} has no line <!-- end -->");
    };
    let wanted = format!("\n{}\n\n", generated.trim());
    if block == wanted {
        return;
    }
    assert!(
        env::var("BLESS").is_ok_and(|v| v == "1"),
        "docs/{page}: {name} is out of date: run `make bless`"
    );
    fs::write(&path, format!("{before}{begin}{wanted}<!-- end -->{after}"))
        .unwrap_or_else(|error| panic!("docs/{page} cannot be written: {error}"));
}

/// The root of the workspace.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
