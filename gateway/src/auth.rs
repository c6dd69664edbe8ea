//! Who calls, and whether it may.
//!
//! Owns the principal of a request and the proof that an operation was allowed. The proof has no other maker than
//! [`authorise`], and no operation can be called without the one for its own request type: forgetting the check does not
//! compile. Who calls is found by [`Credentials`]; without any configured, everyone is the same anonymous caller. Every
//! caller may do everything inside its own scope, its tenant and its name, and sees nothing outside.

mod credentials;
mod read;

pub(crate) use credentials::{Credentials, Schemes, Unauthenticated};

use std::marker::PhantomData;
use std::sync::Arc;

use relevo_shared::domain::record::Sender;
use relevo_shared::ids::ScopeKey;

/// Whose request it is; nobody's, where no credentials are configured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Caller(Option<Arc<str>>);

impl Caller {
    fn named(name: &Arc<str>) -> Self {
        Self(Some(Arc::clone(name)))
    }
}

/// Who calls, in which tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    sender: Sender,
    scope: ScopeKey,
}

impl Principal {
    /// A caller in a tenant of which nothing but the name is known (empty: none).
    pub(crate) fn new(caller: &Caller, tenant: &str) -> Self {
        let sender = Sender {
            tenant: tenant.to_owned(),
            subject: caller.0.as_deref().unwrap_or_default().to_owned(),
            scopes: Vec::new(),
        };
        Self {
            scope: sender.scope(),
            sender,
        }
    }

    /// Whether nobody knows who it is.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.sender.subject.is_empty()
    }

    /// As it is stored with a turn.
    pub(crate) fn sender(&self) -> &Sender {
        &self.sender
    }

    /// What it can see.
    pub(crate) fn scope(&self) -> &ScopeKey {
        &self.scope
    }
}

/// The proof that a principal may do what a request of type `R` asks for.
#[derive(Debug)]
pub(crate) struct Permit<R> {
    principal: Principal,
    request: PhantomData<fn(R)>,
}

impl<R> Permit<R> {
    /// Who it was given to.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }
}

/// Judges whether `principal` may make requests of type `R`.
pub(crate) fn authorise<R>(principal: Principal) -> Permit<R> {
    Permit {
        principal,
        request: PhantomData,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_and_callers_are_different_scopes() {
        let scope = |caller: &Caller, tenant| Principal::new(caller, tenant).scope().clone();
        let (nobody, somebody) = (Caller::default(), Caller::named(&"a".into()));
        assert_ne!(scope(&nobody, "a"), scope(&nobody, "b"));
        assert_ne!(scope(&somebody, "a"), scope(&nobody, "a"));
        assert_ne!(scope(&somebody, ""), scope(&nobody, "a"));
        assert_eq!(scope(&nobody, ""), Sender::default().scope());
    }
}
