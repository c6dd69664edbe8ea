//! How the time of a drain is divided: first turns may finish, then agents are stopped and Redis is told.

use std::time::Duration;

/// What is left, at the least, of the drain's deadline when running turns are given back; of a short one half of it.
const HAND_OVER: Duration = Duration::from_secs(5);
/// What telling Redis needs of it, beside the time that the slowest agent may take to stop.
const REDIS: Duration = Duration::from_secs(1);

/// What must be left when agents are told to stop that may take so long.
pub(crate) fn needs(slowest: Duration) -> Duration {
    slowest.saturating_add(REDIS)
}

/// How long turns may go on.
pub(crate) fn let_run(deadline: Duration, slowest: Duration) -> Duration {
    let reserve = needs(slowest).max(HAND_OVER.min(deadline / 2));
    deadline.saturating_sub(reserve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_have_the_time_that_they_need_and_turns_what_is_left() {
        let s = Duration::from_secs;
        for (deadline, slowest, run) in [
            (600, 2, 595),
            (600, 62, 537),
            (10, 2, 5),
            (10, 6, 3),
            (8, 2, 4),
            (5, 4, 0),
            (4, 2, 1),
            (2, 2, 0),
            (5, 60, 0),
        ] {
            assert_eq!(let_run(s(deadline), s(slowest)), s(run), "{deadline} {slowest}");
        }
    }
}
