//! The section `[runtime]`: what a process computes with.

use std::num::NonZeroUsize;

use crate::platform::config::{ConfigErrors, Validate};

/// More are of no use to anyone.
const MOST_THREADS: usize = 1_024;

crate::settings! {
    /// What a process computes with.
    pub struct RuntimeSettings in "runtime" {
        /// Threads that gateway or worker compute on, 1 to 1024. Unset, and in `relevo dev`: half of the cores that the process may
        /// use, rounded up. Redis and what else is on the machine need the others, and a turn that goes from thread to thread
        /// costs more: one thread serves more turns than a Redis node. Leases are renewed on a thread of their own.
        threads: Option<NonZeroUsize> = "",
    }
}

impl Validate for RuntimeSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        let few = self.threads.is_none_or(|threads| threads.get() <= MOST_THREADS);
        errors.require(few, "runtime.threads", &self.threads, "must be from 1 to 1024");
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::errors_with;

    #[test]
    fn threads_are_one_or_more_and_not_without_bound() {
        for (threads, errors) in [("", 0), ("1", 0), ("1024", 0), ("0", 1), ("1025", 1), ("two", 1)] {
            assert_eq!(errors_with(&[("runtime.threads", threads)]).len(), errors, "{threads}");
        }
    }
}
