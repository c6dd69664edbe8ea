//! Which channels are followed and who listens to each.
//!
//! INVARIANT: no UNSUBSCRIBE of a channel is on its way while a listener counts as live on it. A channel that nobody
//! listens to is left only after a pause, and while it is being left a new listener waits for a SUBSCRIBE that is sent
//! after the answer to the UNSUBSCRIBE.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use relevo_shared::ids::TaskId;
use relevo_shared::store::Doorbell;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::feed::{Feed, Reason};

/// How long a channel without listeners is kept: a client that polls or resumes comes back within it.
const LINGER: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    /// The connection is away.
    Away,
    /// A SUBSCRIBE is wanted or on its way.
    Following,
    /// Acknowledged.
    Live,
    /// An UNSUBSCRIBE is on its way.
    Leaving,
}

#[derive(Debug)]
struct Channel {
    link: Link,
    feeds: Vec<Arc<Feed>>,
    waiting: Vec<oneshot::Sender<()>>,
    /// Since when nobody listens.
    empty: Option<Instant>,
}

/// What a listener that joins has to do.
#[derive(Debug)]
pub(super) enum Joined {
    /// Nothing: it is live, or the connection is away.
    Now,
    /// Wait for the acknowledgement, after asking for the channel when `wish` says so.
    Waits {
        /// Resolves at the acknowledgement; an error when the connection was lost.
        acknowledged: oneshot::Receiver<()>,
        /// Whether nobody has asked for the channel yet.
        wish: bool,
    },
}

/// All channels.
#[derive(Debug, Default)]
pub(super) struct Table {
    connected: bool,
    channels: HashMap<TaskId, Channel>,
    /// Channels without listeners, oldest first, with the moment they were left by their last.
    empty: VecDeque<(Instant, TaskId)>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.channels.len()
    }

    /// Adds a listener.
    pub(super) fn join(&mut self, feed: &Arc<Feed>) -> Joined {
        let connected = self.connected;
        let channel = self.channels.entry(feed.task()).or_insert_with(|| Channel {
            link: Link::Away,
            feeds: Vec::with_capacity(1),
            waiting: Vec::new(),
            empty: None,
        });
        channel.feeds.push(Arc::clone(feed));
        channel.empty = None;
        let wish = channel.link == Link::Away;
        if channel.link == Link::Live || !connected {
            return Joined::Now;
        }
        if wish {
            channel.link = Link::Following;
        }
        let (sender, acknowledged) = oneshot::channel();
        channel.waiting.push(sender);
        Joined::Waits { acknowledged, wish }
    }

    /// Removes a listener.
    pub(super) fn part(&mut self, feed: &Arc<Feed>) {
        let Some(channel) = self.channels.get_mut(&feed.task()) else {
            return;
        };
        channel.feeds.retain(|known| !Arc::ptr_eq(known, feed));
        if channel.feeds.is_empty() {
            let now = Instant::now();
            channel.empty = Some(now);
            self.empty.push_back((now, feed.task()));
        }
    }

    /// Channels that nobody has listened to for a while; they count as being left.
    pub(super) fn deserted(&mut self, now: Instant) -> Vec<TaskId> {
        let mut left = Vec::new();
        while let Some((since, task)) = self.empty.front().copied() {
            if now.duration_since(since) < LINGER {
                break;
            }
            self.empty.pop_front();
            let Some(channel) = self
                .channels
                .get_mut(&task)
                .filter(|channel| channel.empty == Some(since))
            else {
                continue;
            };
            match channel.link {
                Link::Live => {
                    channel.link = Link::Leaving;
                    left.push(task);
                }
                // Not yet acknowledged: looked at again after another pause.
                Link::Following => {
                    channel.empty = Some(now);
                    self.empty.push_back((now, task));
                }
                Link::Away => {
                    self.channels.remove(&task);
                }
                Link::Leaving => {}
            }
        }
        left
    }

    /// The connection is new: every channel with listeners is to be followed, the others are forgotten.
    pub(super) fn connected(&mut self) -> Vec<TaskId> {
        self.connected = true;
        self.channels.retain(|_, channel| !channel.feeds.is_empty());
        self.empty.clear();
        for channel in self.channels.values_mut() {
            channel.link = Link::Following;
        }
        self.channels.keys().copied().collect()
    }

    /// The connection is lost: nobody is live, nobody waits for an acknowledgement.
    pub(super) fn disconnected(&mut self) {
        self.connected = false;
        for channel in self.channels.values_mut() {
            channel.link = Link::Away;
            channel.waiting.clear();
        }
    }

    /// SUBSCRIBE was acknowledged. Returns the channels that nobody knows any more: they are to be left.
    pub(super) fn acknowledged(&mut self, tasks: &[TaskId]) -> Vec<TaskId> {
        let mut unknown = Vec::new();
        for task in tasks {
            let Some(channel) = self.channels.get_mut(task) else {
                unknown.push(*task);
                continue;
            };
            if channel.link != Link::Following {
                continue;
            }
            channel.link = Link::Live;
            for waiting in channel.waiting.drain(..) {
                // Whoever gave up has parted already.
                let _ = waiting.send(());
            }
        }
        unknown
    }

    /// UNSUBSCRIBE was acknowledged. Returns the channels that found listeners meanwhile: they are to be followed again.
    pub(super) fn left(&mut self, tasks: &[TaskId]) -> Vec<TaskId> {
        let mut again = Vec::new();
        for task in tasks {
            let Some(channel) = self.channels.get_mut(task) else {
                continue;
            };
            if channel.feeds.is_empty() {
                self.channels.remove(task);
            } else {
                channel.link = Link::Following;
                again.push(*task);
            }
        }
        again
    }

    /// Hands a message of a task's channel to its listeners.
    pub(super) fn ring(&self, task: TaskId, payload: &Bytes) {
        let Some(channel) = self.channels.get(&task) else {
            return;
        };
        let bell = Doorbell::parse(payload);
        for feed in &channel.feeds {
            match &bell {
                Some(bell) => feed.ring(bell),
                // Not a doorbell: the task was purged, or a newer version rings. The journal tells.
                None => feed.fall_behind(Reason::Missed),
            }
        }
    }

    /// Lets every position of these tasks be looked at soon.
    pub(super) fn doubt(&self, tasks: &[TaskId]) {
        for channel in tasks.iter().filter_map(|task| self.channels.get(task)) {
            channel.feeds.iter().for_each(|feed| feed.doubt());
        }
    }

    /// Every listener.
    pub(super) fn feeds(&self) -> impl Iterator<Item = &Arc<Feed>> {
        self.channels.values().flat_map(|channel| &channel.feeds)
    }
}

#[cfg(test)]
mod tests {
    use relevo_shared::ids::{EntryId, Partition};

    use super::super::feed::Want;
    use super::*;

    fn feed(random: u64) -> Arc<Feed> {
        Arc::new(Feed::new(
            TaskId::new(1, Partition(0), random),
            EntryId::START,
            Want::Events,
            100,
        ))
    }

    fn waits(joined: Joined) -> (oneshot::Receiver<()>, bool) {
        match joined {
            Joined::Waits { acknowledged, wish } => (acknowledged, wish),
            Joined::Now => panic!("it does not wait"),
        }
    }

    #[test]
    fn a_listener_waits_for_the_acknowledgement_and_the_next_does_not() {
        let mut table = Table::default();
        table.connected();
        let (first, second) = (feed(1), feed(1));
        let (mut acknowledged, wish) = waits(table.join(&first));
        assert!(wish);
        assert!(acknowledged.try_recv().is_err());
        let (_, wish) = waits(table.join(&second));
        assert!(!wish, "the channel was asked for already");
        assert_eq!(table.acknowledged(&[first.task()]), []);
        assert!(acknowledged.try_recv().is_ok());
        assert!(matches!(table.join(&feed(1)), Joined::Now));
    }

    #[test]
    fn without_a_connection_nobody_waits() {
        let mut table = Table::default();
        assert!(matches!(table.join(&feed(1)), Joined::Now));
        let task = feed(1).task();
        assert_eq!(table.connected(), [task]);
        let (mut acknowledged, wish) = waits(table.join(&feed(1)));
        assert!(!wish);
        table.disconnected();
        assert_eq!(acknowledged.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    #[test]
    fn a_listener_that_comes_while_its_channel_is_left_waits_for_a_new_subscription() {
        let mut table = Table::default();
        table.connected();
        let first = feed(1);
        let task = first.task();
        let _waiting = waits(table.join(&first));
        assert_eq!(table.acknowledged(&[task]), []);
        table.part(&first);
        assert_eq!(table.deserted(Instant::now()), []);
        assert_eq!(table.deserted(Instant::now() + LINGER), [task]);
        let second = feed(1);
        let (mut acknowledged, wish) = waits(table.join(&second));
        assert!(!wish);
        assert_eq!(table.left(&[task]), [task]);
        assert!(acknowledged.try_recv().is_err());
        assert_eq!(table.acknowledged(&[task]), []);
        assert!(acknowledged.try_recv().is_ok());
        assert_eq!(table.feeds().count(), 1);
    }

    #[test]
    fn a_channel_is_kept_for_a_listener_that_comes_back_in_time() {
        let mut table = Table::default();
        table.connected();
        let first = feed(1);
        let _waiting = waits(table.join(&first));
        assert_eq!(table.acknowledged(&[first.task()]), []);
        table.part(&first);
        let second = feed(1);
        assert!(matches!(table.join(&second), Joined::Now));
        assert_eq!(table.deserted(Instant::now() + LINGER), []);
        table.part(&second);
        assert_eq!(table.deserted(Instant::now() + LINGER), [first.task()]);
        assert_eq!(table.left(&[first.task()]), []);
        assert_eq!(table.len(), 0);
    }
}
