//! Files of PEM certificates that are trusted beside the public authorities.

use std::path::Path;

use reqwest::Certificate;

/// Reads a file of them. The error is a clause about the file.
pub(crate) fn certificates(path: &Path) -> Result<Vec<Certificate>, String> {
    let text = std::fs::read(path).map_err(|error| format!("cannot be read: {}", error.kind()))?;
    let found = Certificate::from_pem_bundle(&text).map_err(|_invalid| "is no PEM".to_owned())?;
    if found.is_empty() {
        return Err("holds no certificate".to_owned());
    }
    Ok(found)
}
