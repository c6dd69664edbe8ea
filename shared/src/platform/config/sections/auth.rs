//! `[auth]`: the credentials of one caller or one team. Several callers have tables of their own, `[principals.<name>]`.

use crate::platform::config::{ConfigErrors, Secret, Validate};

crate::settings! {
    /// Who may call. Without a credential here or in `[principals.<name>]` everyone may, and everyone is the same caller.
    /// Only gateways read it.
    pub struct AuthSettings in "auth" {
        /// Bearer token (`Authorization: Bearer …`) of the caller `bearer`. A table of `[principals]` can take it from a
        /// file and name its owner. Visible ASCII characters, as in API keys: headers carry no others.
        token: Option<Secret> = "",
        /// User name for HTTP Basic, of the caller `basic:<username>`. Together with `basic_password`.
        basic_username: Option<String> = "",
        /// Password for HTTP Basic. Together with `basic_username`.
        basic_password: Option<Secret> = "",
        /// API key of the caller `api-key:<header>`, sent in the header that `api_key_header` names.
        api_key: Option<Secret> = "",
        /// The header of API keys, also of those in `[principals.<name>]`.
        api_key_header: String = "X-API-Key",
        /// Whether the public agent card needs a credential, too. Clients read it to learn which credentials there are, so
        /// by default it does not.
        card: bool = "false",
    }
}

/// Headers that say something else already.
const TAKEN: [&str; 6] = [
    "authorization",
    "host",
    "content-type",
    "content-length",
    "cookie",
    "connection",
];

impl Validate for AuthSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        let both = self.basic_username.is_some() == self.basic_password.is_some();
        if !both {
            errors.refuse(
                "auth.basic_username",
                "needs auth.basic_password beside it, and the other way round",
            );
        }
        let name = self.basic_username.as_deref().is_none_or(|name| !name.contains(':'));
        errors.require(
            name,
            "auth.basic_username",
            &self.basic_username,
            "must not contain a colon",
        );
        let header = self.api_key_header.to_ascii_lowercase();
        let token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
        errors.require(
            !header.is_empty() && header.bytes().all(token) && !TAKEN.contains(&header.as_str()),
            "auth.api_key_header",
            &self.api_key_header,
            "must be the name of a header that says nothing else",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::errors_with;

    #[test]
    fn half_of_a_basic_credential_is_refused() {
        assert_eq!(errors_with(&[("auth.basic_username", "u")]).len(), 1);
        assert_eq!(errors_with(&[("auth.basic_password", "p")]).len(), 1);
        let whole = [("auth.basic_username", "u"), ("auth.basic_password", "p")];
        assert_eq!(errors_with(&whole), Vec::<String>::new());
        let colon = [("auth.basic_username", "u:v"), ("auth.basic_password", "p")];
        assert_eq!(errors_with(&colon).len(), 1);
    }

    #[test]
    fn api_keys_have_a_header_of_their_own() {
        for wrong in ["Authorization", "a b", "host", "a:"] {
            assert_eq!(errors_with(&[("auth.api_key_header", wrong)]).len(), 1, "{wrong}");
        }
        assert_eq!(
            errors_with(&[("auth.api_key_header", "X-Team_Key")]),
            Vec::<String>::new()
        );
    }
}
