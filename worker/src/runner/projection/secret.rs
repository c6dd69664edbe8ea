//! Names under which credentials stand.

/// Words that say so by themselves.
const WORDS: [&str; 16] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "secrets",
    "token",
    "credential",
    "credentials",
    "authorization",
    "cookie",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "bearer",
];
/// Words that say so before `key`.
const KEYS: [&str; 6] = ["api", "access", "private", "signing", "encryption", "master"];

/// Whether a name reads like that of a credential, however it is spelled: `api-key`, `ApiKey`, `DB_PASSWORD_2`. What is counted
/// (`maxTokens`) is none.
pub(super) fn is_secret(name: &str) -> bool {
    let words = words(name);
    let single = words.iter().any(|word| WORDS.contains(&word.as_str()));
    let pair = words
        .windows(2)
        .any(|pair| matches!(pair, [first, last] if last == "key" && KEYS.contains(&first.as_str())));
    single || pair
}

/// `accessKeyId2` as `access`, `key`, `id`.
fn words(name: &str) -> Vec<String> {
    let (mut words, mut word, mut low) = (Vec::new(), String::new(), false);
    for letter in name.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && low) {
            words.push(std::mem::take(&mut word));
        }
        if letter.is_alphabetic() {
            word.extend(letter.to_lowercase());
        }
        low = letter.is_lowercase();
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_credentials_are_known_in_every_spelling() {
        for name in [
            "password",
            "DB_PASSWORD_2",
            "dbPassword",
            "api-key",
            "apiKey",
            "APIKey",
            "access_key_id",
            "AccessKeySecret",
            "x-security-token",
            "Authorization",
            "client_secret",
            "privateKey",
            "set-cookie",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "",
            "key",
            "keys",
            "inputTokens",
            "totalTokens",
            "max_tokens",
            "tokenizer",
            "path",
            "content",
            "primary_key",
            "toolUseId",
            "secretary",
            "author",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
