//! Who calls, and whether it may.
//!
//! Owns the principal of a request and the proof that an operation was allowed. The proof has no other maker than
//! [`authorise`], and no operation can be called without the one for its own request type: forgetting the check does not
//! compile. For now everyone is anonymous and may do everything inside its tenant.

use std::marker::PhantomData;

use relevo_shared::domain::record::Sender;
use relevo_shared::ids::ScopeKey;

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    sender: Sender,
    scope: ScopeKey,
}

impl Principal {
    /// Someone unknown, in a tenant of which nothing but the name is known (empty: none).
    pub(crate) fn anonymous(tenant: &str) -> Self {
        let sender = Sender {
            tenant: tenant.to_owned(),
            ..Sender::default()
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
    fn tenants_are_different_scopes() {
        assert_ne!(Principal::anonymous("a").scope(), Principal::anonymous("b").scope());
        assert_eq!(Principal::anonymous("").scope(), &Sender::default().scope());
    }
}
