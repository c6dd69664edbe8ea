//! The only place a key is formatted. Every key is `<prefix>:{<tag>}:<name>`; the tag is the partition's.
//!
//! Scripts receive [`Keys::meta`] as KEYS\[1\] and derive the names listed here from its prefix.

use super::StoreError;
use crate::ids::{ContextKey, IdempotencyKey, Layout, OwnerKey, Partition, ScopeKey, TaskId, TurnId};

/// The hash tag of bells and of the registry of workers.
pub(super) const BELL_TAG: &str = "bell";

/// Formats keys.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
    bases: Vec<String>,
    layout: Layout,
}

impl Keys {
    /// # Errors
    /// [`StoreError::Refused`] for a prefix that is not `[a-z0-9_-]{1,32}`: a brace in it would move every key.
    pub fn new(prefix: &str, layout: Layout) -> Result<Self, StoreError> {
        let fits = (1..=32).contains(&prefix.len())
            && prefix
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'));
        if !fits {
            let rule = format!("redis.prefix must be 1 to 32 characters of [a-z0-9_-], not `{prefix}`");
            return Err(StoreError::Refused { rule });
        }
        let bases = layout
            .all()
            .map(|p| format!("{prefix}:{{{}}}:", layout.tag(p).unwrap_or_default()))
            .collect();
        Ok(Self {
            prefix: prefix.to_owned(),
            bases,
            layout,
        })
    }

    /// How the partitions are laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn base(&self, partition: Partition) -> &str {
        // Ids of other layouts are refused before they come here (`Store::may_hold`); partition 0 always exists.
        self.bases
            .get(usize::from(partition.0))
            .or(self.bases.first())
            .map_or("", String::as_str)
    }

    /// Hash: server run id, grace, janitor stamp.
    pub fn meta(&self, partition: Partition) -> String {
        format!("{}meta", self.base(partition))
    }

    /// Never written. A script that names it beside its other key is refused as a whole while the slot moves to another node,
    /// because a cluster refuses what names a key that is not there.
    pub(super) fn absent(&self, partition: Partition) -> String {
        format!("{}absent", self.base(partition))
    }

    /// Stream, group `workers`: turns that wait. `suffix` is empty, `:first` or `:last`.
    pub fn queue(&self, partition: Partition, takers: &str, suffix: &str) -> String {
        format!("{}{}", self.base(partition), queue_name(takers, suffix))
    }

    /// Zset: pools and storages that have queues here, by when a turn was last queued.
    pub fn storages(&self, partition: Partition) -> String {
        format!("{}storages", self.base(partition))
    }

    /// Hash: one turn.
    pub fn turn(&self, turn: TurnId) -> String {
        format!("{}turn:{turn}", self.base(turn.partition()))
    }

    /// Hash: what an idempotency key stands for.
    pub fn idempotency(&self, partition: Partition, key: &IdempotencyKey) -> String {
        format!("{}idem:{}", self.base(partition), key.as_str())
    }

    /// Hash: one context.
    pub fn context(&self, partition: Partition, context: &ContextKey) -> String {
        format!("{}ctx:{context}", self.base(partition))
    }

    /// List: the session of an agent in a context.
    pub fn session(&self, partition: Partition, context: &ContextKey, agent: &str) -> String {
        format!("{}sess:{context}:{agent}", self.base(partition))
    }

    /// List: the turns of a context behind its live one, in order.
    pub fn waiting(&self, partition: Partition, context: &ContextKey) -> String {
        format!("{}wait:{context}", self.base(partition))
    }

    /// Zset: the turns of all these lists, by when they were accepted.
    pub fn all_waiting(&self, partition: Partition) -> String {
        format!("{}waiting", self.base(partition))
    }

    /// Zset: suspended turns, by since when.
    pub fn suspended(&self, partition: Partition) -> String {
        format!("{}suspended", self.base(partition))
    }

    /// Zset: contexts with a live turn, by when to look.
    pub fn due(&self, partition: Partition) -> String {
        format!("{}due", self.base(partition))
    }

    /// Hash: one task.
    pub fn task(&self, task: TaskId) -> String {
        format!("{}task:{task}", self.base(task.partition()))
    }

    /// List: the messages of a task.
    pub fn history(&self, task: TaskId) -> String {
        format!("{}hist:{task}", self.base(task.partition()))
    }

    /// Stream: the journal of a task.
    pub fn journal(&self, task: TaskId) -> String {
        format!("{}ev:{task}", self.base(task.partition()))
    }

    /// Zset: tasks of a scope by status time.
    pub fn index(&self, partition: Partition, scope: &ScopeKey) -> String {
        format!("{}idx:{scope}", self.base(partition))
    }

    /// Zset: tasks of a scope in one state.
    pub fn state_index(&self, partition: Partition, scope: &ScopeKey, state: &str) -> String {
        format!("{}idx:{scope}:{state}", self.base(partition))
    }

    /// Zset: tasks of a context.
    pub fn context_index(&self, partition: Partition, context: &ContextKey) -> String {
        format!("{}idx:ctx:{context}", self.base(partition))
    }

    /// Zset: turns of a scope, live and waiting, while they are counted.
    pub fn live_turns(&self, partition: Partition, scope: &ScopeKey) -> String {
        format!("{}q:{scope}", self.base(partition))
    }

    /// Zset: tasks and contexts by delete-at.
    pub fn retain(&self, partition: Partition) -> String {
        format!("{}retain", self.base(partition))
    }

    /// Zset: tasks that may have objects in the artifact store, by when to look.
    pub fn objects(&self, partition: Partition) -> String {
        format!("{}objects", self.base(partition))
    }

    /// Hash: the principal that a task's objects are counted for.
    pub fn owners(&self, partition: Partition) -> String {
        format!("{}owners", self.base(partition))
    }

    /// Hash: what the tasks of a principal have in the artifact store.
    pub fn used(&self, owner: &OwnerKey) -> String {
        format!("{}used:{owner}", self.base(owner.partition(self.layout.partitions())))
    }

    /// Stream, capped: turns that nobody will run again.
    pub fn dead(&self, partition: Partition) -> String {
        format!("{}turns:dead", self.base(partition))
    }

    /// Channel: doorbells of a task.
    pub fn channel(&self, task: TaskId) -> String {
        format!("{}ch:{task}", self.base(task.partition()))
    }

    /// Channel: control messages of a partition.
    pub fn control(&self, partition: Partition) -> String {
        format!("{}ctl", self.base(partition))
    }

    /// Zset: partitions with undelivered turns, a hint.
    pub fn bell(&self, takers: &str) -> String {
        format!("{}:{{{BELL_TAG}}}:{takers}", self.prefix)
    }

    /// Zset: workers by when they were last seen.
    pub fn workers(&self) -> String {
        format!("{}:{{{BELL_TAG}}}:workers", self.prefix)
    }

    /// Zset: pools with workers that serve them, by when they last said so. No pool is called like that.
    pub fn serving(&self) -> String {
        format!("{}:{{{BELL_TAG}}}:workers:pools", self.prefix)
    }

    /// Zset: pools and storages, by when a worker last said that it has them.
    pub fn served(&self) -> String {
        format!("{}:{{{BELL_TAG}}}:workers:storages", self.prefix)
    }

    /// Hash: partitions, tags, versions; written once.
    pub fn layout_key(&self) -> String {
        format!("{}:layout", self.prefix)
    }
}

/// The name of a queue below the partition's prefix, as scripts store it.
pub(super) fn queue_name(takers: &str, suffix: &str) -> String {
    format!("turns:{takers}{suffix}")
}

/// A row of the key table in docs/redis.md.
#[derive(Debug, Clone, Copy)]
pub struct KeyDoc {
    /// After the tag.
    pub name: &'static str,
    /// Redis type.
    pub kind: &'static str,
    /// What it holds.
    pub holds: &'static str,
    /// What bounds it.
    pub bound: &'static str,
}

const fn doc(name: &'static str, kind: &'static str, holds: &'static str, bound: &'static str) -> KeyDoc {
    KeyDoc {
        name,
        kind,
        holds,
        bound,
    }
}

/// Every key class.
#[expect(clippy::too_many_lines, reason = "a table")]
pub fn documented() -> Vec<KeyDoc> {
    vec![
        doc(
            "meta",
            "hash",
            "`run` server run id seen, `grace` Redis ms before which no lease is judged, `swept` janitor stamp, `cleaned` when the consumers of the queues were last looked through, `side:<takers>` that their queues `:first` and `:last` may hold turns",
            "one per partition",
        ),
        doc(
            "turns:<pool>",
            "stream, group `workers`",
            "queue entries `t` turn id, `x` context key; pending until the turn ends",
            "`limits.backlog`",
        ),
        doc(
            "turns:<pool>:first",
            "stream, group `workers`",
            "turns that come back: recovered, handed back or answered; taken first",
            "`limits.backlog`",
        ),
        doc(
            "turns:<pool>:last",
            "stream, group `workers`",
            "turns on their last attempt; a worker runs one of them at a time",
            "`limits.backlog`",
        ),
        doc(
            "turns:<pool>@<storage>",
            "stream, group `workers`",
            "turns of contexts whose workspace is on a storage; with the suffixes `:first` and `:last`, too",
            "there as long as they hold turns",
        ),
        doc(
            "storages",
            "zset",
            "`<pool>@<storage>` of those queues, by the Redis ms at which a turn was last queued",
            "as those queues",
        ),
        doc(
            "turn:<id>",
            "hash",
            "`r` record (JSON), `k` task, `n` turn number, `f` first entry, `e`/`q` queue entry and queue, `charged`, `handbacks`, `opened`, `begun`, `slen` session length at the turn's start, `sn` nonce of the last batch of session items without events; of one that waited behind another, or was suspended, `since` when it became live, or was answered (Redis ms), `age`, `dl` how long and until when it may be queued then, `place` its place in the line; `ws` whether it works in its context's workspace",
            "reduced to `f`, `n` at the end and gone 10 min later; under the id of an answer to a suspended turn only these",
        ),
        doc(
            "ctx:<context>",
            "hash",
            "`id` the client's name, `scope`, `turn` live turn, `ep` epoch, `pep` the epoch before, `tok` lease token, `until` lease end (Redis ms), `wk` worker, `cancel`, `at` retry time, or `s` and until when it is suspended, `w` whether turns wait, `ws` workspace, `sto` the storage where that is, `s:<agent>` an agent with a session",
            "in `retain`",
        ),
        doc(
            "wait:<context>",
            "list",
            "turns that wait behind the live one, in the order of their acceptance; the end of the live turn makes the first of them live",
            "16",
        ),
        doc(
            "waiting",
            "zset",
            "the same turns, of all contexts, by the Redis ms of their acceptance",
            "as those lists",
        ),
        doc(
            "suspended",
            "zset",
            "turns that wait for their user's answer, by the Redis ms of their suspension",
            "one member per context with turns, for `turn.max_suspended`",
        ),
        doc(
            "due",
            "zset",
            "every context with a live turn, or with turns that wait and none that is live; score = Redis ms at which someone must look; one that cannot be judged is put off for a minute",
            "one member per context with turns",
        ),
        doc(
            "task:<id>",
            "hash",
            "`scope`, `ctx`, `cid` context id, `state`, `last` journal id, `cr`/`up` created and status time, `n` turn number, `live` turn, `k` class of the last end, `i` while its turn is suspended, `snap`/`snapc` snapshot and its entry, `base`/`basec` the same at the turn's start, `hid` while nobody may see it (`1`), or ever (`2`), `a` its agent",
            "in `retain`",
        ),
        doc(
            "hist:<id>",
            "list",
            "messages of the task (JSON); of a task that is over those of its last turn are in its snapshot, if they are at most 2 KiB",
            "deleted with the task",
        ),
        doc(
            "sess:<context>:<agent>",
            "list",
            "session items (JSON) of an agent, appended with the events they belong to",
            "10,000 items; deleted with the context",
        ),
        doc(
            "ev:<id>",
            "stream",
            "the journal: `e` event bytes, `k` turn number and class",
            "trimmed at each turn's end; deleted with the task",
        ),
        doc(
            "idx:<scope>",
            "zset",
            "tasks of a scope by status time",
            "members go with their task",
        ),
        doc(
            "idx:<scope>:<state>",
            "zset",
            "the same, one per state",
            "members go with their task",
        ),
        doc(
            "idx:ctx:<context>",
            "zset",
            "tasks of a context by status time",
            "members go with their task",
        ),
        doc(
            "q:<scope>",
            "zset",
            "turns of a scope, live and waiting, only while `limits.scope_turns` is set",
            "`limits.scope_turns`",
        ),
        doc(
            "idem:<key>",
            "hash",
            "reservation of a keyed send: `digest` of the request, `task`, `turn`, `cid` context id, `cr` created",
            "Redis TTL `retention.idempotency`",
        ),
        doc(
            "retain",
            "zset",
            "`t:<task>`, `c:<context>` and `j:<task>` (only the journal) by the Redis ms at which they are deleted; what cannot be deleted is put off for a minute",
            "at most two members per task without a turn, one per idle context",
        ),
        doc(
            "objects",
            "zset",
            "tasks that may have objects in the artifact store, by the Redis ms at which somebody must look; the deletion of the task makes it due at once",
            "one per task with objects, until they are deleted",
        ),
        doc(
            "owners",
            "hash",
            "of those tasks the principals that their objects are counted for, only while `artifacts.principal_bytes` is set",
            "one field per member of `objects`",
        ),
        doc(
            "used:<principal>",
            "hash",
            "what the tasks of a principal have in the artifact store: `sum`, and of each task `<epoch> <bytes>`; in a partition of the principal's, only while `artifacts.principal_bytes` is set",
            "one field per task with objects, until they are deleted",
        ),
        doc(
            "turns:dead",
            "stream",
            "dead letters: `t` turn, `k` task, `x` context key, `reason`, `r` record",
            "1,000 per partition, or as many as the last in 4 MiB, and `retention.task` after the last one; older ones go when one comes",
        ),
        doc(
            "ch:<task>",
            "channel",
            "doorbells `<prev> <last> <kinds> <lengths>\\n<events>`",
            "not stored",
        ),
        doc("ctl", "channel", "`cancel <context> <turn>`", "not stored"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fixed_for_ever() {
        let keys = Keys::new("relevo", Layout::new(64).unwrap()).unwrap();
        let task = TaskId::new(0, Partition(7), 1);
        let turn = TurnId::new(0, Partition(7), 2);
        let scope = ScopeKey::of("", "");
        let (context, _) = ContextKey::of(&scope, "c-1", 64);
        let p = Partition(7);
        let all = [
            keys.meta(p),
            keys.queue(p, "default", ":first"),
            keys.queue(p, "default@disk-1", ":first"),
            keys.storages(p),
            keys.turn(turn),
            keys.context(p, &context),
            keys.waiting(p, &context),
            keys.all_waiting(p),
            keys.suspended(p),
            keys.due(p),
            keys.task(task),
            keys.history(task),
            keys.journal(task),
            keys.index(p, &scope),
            keys.state_index(p, &scope, "WORKING"),
            keys.context_index(p, &context),
            keys.retain(p),
            keys.objects(p),
            keys.owners(p),
            keys.used(&OwnerKey::of("")),
            keys.dead(p),
            keys.channel(task),
            keys.control(p),
            keys.bell("default"),
            keys.workers(),
            keys.serving(),
            keys.served(),
            keys.layout_key(),
        ];
        let expected = [
            "relevo:{7.38}:meta",
            "relevo:{7.38}:turns:default:first",
            "relevo:{7.38}:turns:default@disk-1:first",
            "relevo:{7.38}:storages",
            "relevo:{7.38}:turn:00000000-0000-7007-8000-000000000002",
            "relevo:{7.38}:ctx:MmdNz3o4cwkkWRRLywWS1o",
            "relevo:{7.38}:wait:MmdNz3o4cwkkWRRLywWS1o",
            "relevo:{7.38}:waiting",
            "relevo:{7.38}:suspended",
            "relevo:{7.38}:due",
            "relevo:{7.38}:task:00000000-0000-7007-8000-000000000001",
            "relevo:{7.38}:hist:00000000-0000-7007-8000-000000000001",
            "relevo:{7.38}:ev:00000000-0000-7007-8000-000000000001",
            "relevo:{7.38}:idx:2HsxVjiQfWElxYAvdFasPF",
            "relevo:{7.38}:idx:2HsxVjiQfWElxYAvdFasPF:WORKING",
            "relevo:{7.38}:idx:ctx:MmdNz3o4cwkkWRRLywWS1o",
            "relevo:{7.38}:retain",
            "relevo:{7.38}:objects",
            "relevo:{7.38}:owners",
            "relevo:{59.33}:used:9U-u_jb-UwZ-SRYfjX1H7S",
            "relevo:{7.38}:turns:dead",
            "relevo:{7.38}:ch:00000000-0000-7007-8000-000000000001",
            "relevo:{7.38}:ctl",
            "relevo:{bell}:default",
            "relevo:{bell}:workers",
            "relevo:{bell}:workers:pools",
            "relevo:{bell}:workers:storages",
            "relevo:layout",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_prefix_that_could_move_keys_is_refused() {
        for bad in ["", "a{b", "a:b", "A", &"x".repeat(33)] {
            assert!(Keys::new(bad, Layout::new(1).unwrap()).is_err(), "{bad}");
        }
    }
}
