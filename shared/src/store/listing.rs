//! Listings of tasks, newest status first, from the indexes that every script keeps with a task's status.
//!
//! A page reads its share of an index and no more, over exclusive connections: it must not hold up the scripts. What clients
//! see of a task is read by [`Store::read_task`].

use a2a::TaskState;
use redis::Value;

use super::connection::{At, command};
use super::script::{number, text};
use super::{Store, StoreError};
use crate::domain::page::Place;
use crate::domain::state;
use crate::ids::{ContextKey, Partition, ScopeKey, TaskId};

/// How many members of an index are read at a time, at the least, when only some of them are wanted.
const LEAST_PART: usize = 256;
/// And when they are only counted.
const COUNTED_PART: u64 = 2_000;
/// How many members are read of each of many indexes, at the least.
const LEAST_SHARE: usize = 8;

/// Which tasks a listing shows.
#[derive(Debug, Clone)]
pub struct ListFilter {
    /// Whose.
    pub scope: ScopeKey,
    /// Of which context.
    pub context: Option<(ContextKey, Partition)>,
    /// In which state.
    pub state: Option<TaskState>,
    /// Only with a status that is not older than this, ms.
    pub since: Option<u64>,
}

/// A part of the members of an index: newest first.
#[derive(Debug, Clone, Copy)]
struct Range {
    /// Down to this time.
    since: Option<u64>,
    /// Beyond this place.
    after: Option<Place>,
}

impl Range {
    /// Redis reads from the time of the place on: what shares that time may stand before it.
    fn holds(&self, place: Place) -> bool {
        self.after.is_none_or(|after| place < after)
    }
}

/// How far the members of an index have been read.
#[derive(Debug, Clone, Copy)]
struct Read {
    range: Range,
    /// How many to pass over: as many as were read of one and the same time.
    offset: usize,
}

impl Read {
    fn of(range: Range) -> Self {
        Self { range, offset: 0 }
    }

    /// What comes after a part whose last member was this one. By its place and not by its number: members that leave the index
    /// meanwhile, or come into it, must not move what is read next.
    fn after(self, last: Place, part: usize) -> Self {
        let Self { range, offset } = self;
        if range.after.is_none_or(|after| last.time < after.time) {
            let after = Some(last);
            Self::of(Range { after, ..range })
        } else {
            let offset = offset + part;
            Self { range, offset }
        }
    }
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Tasks, newest status first.
    pub places: Vec<Place>,
    /// Whether more follow.
    pub more: bool,
    /// How many match in all.
    pub total: u64,
}

impl Store {
    /// Lists tasks after a place.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn list_tasks(
        &self,
        filter: &ListFilter,
        after: Option<Place>,
        size: usize,
    ) -> Result<Listed, StoreError> {
        let state = filter.state.as_ref().map(state::word);
        let range = Range {
            since: filter.since,
            after,
        };
        let in_state = |p| state.map(|state| self.keys().state_index(p, &filter.scope, state));
        let (mut places, total) = if let Some((context, partition)) = &filter.context {
            let (at, index) = (
                At::Partition(*partition),
                self.keys().context_index(*partition, context),
            );
            match in_state(*partition) {
                None => self.list_indexes(vec![(at, index)], range, size).await?,
                Some(state) => self.list_both(at, &index, &state, range, size).await?,
            }
        } else {
            let index = |p| in_state(p).unwrap_or_else(|| self.keys().index(p, &filter.scope));
            let all = self.keys().layout().all();
            let indexes = all.map(|p| (At::Partition(p), index(p))).collect();
            self.list_indexes(indexes, range, size).await?
        };
        places.sort_unstable_by(|a, b| b.cmp(a));
        places.dedup();
        let more = places.len() > size;
        places.truncate(size);
        Ok(Listed { places, more, total })
    }

    /// At least the first `size + 1` members of several indexes together, if they have so many, and how many they have in all.
    async fn list_indexes(
        &self,
        indexes: Vec<(At, String)>,
        range: Range,
        size: usize,
    ) -> Result<(Vec<Place>, u64), StoreError> {
        let counts = indexes.iter().map(|(at, index)| (*at, count(index, range.since)));
        let counts = self.pipelined("ZCOUNT", counts.collect()).await?;
        let counts: Vec<u64> = counts.iter().map(number).collect::<Result<_, _>>()?;
        let total = counts.iter().sum();

        let mut places: Vec<Place> = Vec::new();
        let filled = indexes.into_iter().zip(counts).filter(|(_, n)| *n > 0);
        let mut open: Vec<((At, String), Read)> = filled.map(|(index, _)| (index, Read::of(range))).collect();
        // Of many indexes each has a few of the newest, most likely.
        let mut part = (size + 1).min(LEAST_SHARE + 2 * (size + 1) / open.len().max(1));
        while !open.is_empty() {
            let ranges = open.iter().map(|((at, index), read)| (*at, newest(index, *read, part)));
            let answers = self.pipelined("ZREVRANGEBYSCORE", ranges.collect()).await?;
            let mut next = Vec::new();
            for ((index, read), answer) in open.into_iter().zip(answers) {
                let mut found = members(answer)?;
                if let Some(last) = found.last().filter(|_| found.len() == part) {
                    next.push((index, read.after(*last, part), *last));
                }
                found.retain(|place| range.holds(*place));
                places.append(&mut found);
            }
            places.sort_unstable_by(|a, b| b.cmp(a));
            // What moved between two reads may have been read twice.
            places.dedup();
            places.truncate(size + 1);
            // What an index has beyond its last member read comes after that: it matters while the page would reach there.
            let end = places.get(size).copied();
            next.retain(|(_, _, last)| end.is_none_or(|end| *last > end));
            open = next.into_iter().map(|(index, read, _)| (index, read)).collect();
            part = size + 1;
        }
        Ok((places, total))
    }

    /// The same for the members of one index that another one has too.
    async fn list_both(
        &self,
        at: At,
        index: &str,
        other: &str,
        range: Range,
        size: usize,
    ) -> Result<(Vec<Place>, u64), StoreError> {
        let total = self.count_both(at, index, other, range.since).await?;
        let (mut places, mut read, part) = (Vec::new(), Read::of(range), LEAST_PART.max(size + 1));
        while total > 0 && places.len() <= size {
            let mut kept = members(self.single("ZREVRANGEBYSCORE", at, newest(index, read, part)).await?)?;
            let last = kept.last().copied().filter(|_| kept.len() == part);
            kept.retain(|place| read.range.holds(*place));
            places.append(&mut self.also_in(at, other, kept).await?);
            match last {
                Some(last) => read = read.after(last, part),
                None => break,
            }
        }
        Ok((places, total))
    }

    /// How many members of one index that are not older than `since` another one has, too.
    async fn count_both(&self, at: At, index: &str, other: &str, since: Option<u64>) -> Result<u64, StoreError> {
        let all = number(&self.single("ZCOUNT", at, count(index, None)).await?)?;
        let newer = match since {
            Some(_) => number(&self.single("ZCOUNT", at, count(index, since)).await?)?,
            None => all,
        };
        if newer == all {
            let mut both = command("ZINTERCARD");
            both.arg(2).arg(index).arg(other);
            return number(&self.single("ZINTERCARD", at, both).await?);
        }
        // Redis counts no intersection of a part.
        let (mut counted, mut from) = (0, 0);
        while from < newer {
            let to = (from + COUNTED_PART).min(newer);
            let mut part = command("ZREVRANGE");
            part.arg(index).arg(from).arg(to - 1).arg("WITHSCORES");
            let places = members(self.single("ZREVRANGE", at, part).await?)?;
            counted += self.also_in(at, other, places).await?.len() as u64;
            from = to;
        }
        Ok(counted)
    }

    /// Those that an index has, too.
    async fn also_in(&self, at: At, index: &str, mut places: Vec<Place>) -> Result<Vec<Place>, StoreError> {
        if places.is_empty() {
            return Ok(places);
        }
        let mut scores = command("ZMSCORE");
        scores.arg(index);
        for place in &places {
            scores.arg(place.task.to_string());
        }
        let Value::Array(scores) = self.single("ZMSCORE", at, scores).await? else {
            return Err(StoreError::corrupt("ZMSCORE", "not a list"));
        };
        let mut scores = scores.into_iter();
        places.retain(|_| scores.next().is_some_and(|score| score != Value::Nil));
        Ok(places)
    }

    /// One command over an exclusive connection.
    async fn single(&self, what: &'static str, at: At, command: redis::Cmd) -> Result<Value, StoreError> {
        let mut answers = self.pipelined(what, vec![(at, command)]).await?;
        Ok(answers.pop().unwrap_or(Value::Nil))
    }
}

/// How many members are not older than `since`.
fn count(key: &str, since: Option<u64>) -> redis::Cmd {
    let mut count = command(if since.is_some() { "ZCOUNT" } else { "ZCARD" });
    count.arg(key);
    if let Some(since) = since {
        count.arg(since).arg("+inf");
    }
    count
}

fn newest(key: &str, Read { range, offset }: Read, count: usize) -> redis::Cmd {
    let mut newest = command("ZREVRANGEBYSCORE");
    newest.arg(key);
    match range.after {
        Some(place) => newest.arg(place.time),
        None => newest.arg("+inf"),
    };
    match range.since {
        Some(since) => newest.arg(since),
        None => newest.arg("-inf"),
    };
    newest.arg("WITHSCORES").arg("LIMIT").arg(offset).arg(count);
    newest
}

/// The members of a reply, each with its score.
fn members(answer: Value) -> Result<Vec<Place>, StoreError> {
    let wrong = || StoreError::corrupt("index", "a member is not readable");
    let Value::Array(values) = answer else {
        return Err(wrong());
    };
    let place = |pair: &[Value]| {
        let [member, score] = pair else { return Err(wrong()) };
        Ok(Place {
            time: number(score)?,
            task: text(member).and_then(|t| TaskId::parse(&t)).ok_or_else(wrong)?,
        })
    };
    values.chunks(2).map(place).collect()
}
