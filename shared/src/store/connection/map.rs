//! Which node of a cluster serves what, at one moment. Only the slots that are used count, so a lookup is an index into a table.

use std::collections::BTreeSet;
use std::sync::Arc;

use redis::RedisError;

use super::At;
use super::node::Node;
use super::slots::{Range, unserved};
use crate::ids::key_slot;

/// The slots that are used.
#[derive(Debug)]
pub(super) struct Slots {
    /// By partition.
    pub(super) partitions: Vec<u32>,
    pub(super) bell: u32,
    pub(super) layout: u32,
}

/// Which node serves what, at one moment.
#[derive(Default)]
pub(in super::super) struct Map {
    nodes: Vec<Arc<Node>>,
    partitions: Vec<Option<usize>>,
    bell: Option<usize>,
    layout: Option<usize>,
    /// How many slots have a node.
    served: u32,
}

impl Map {
    /// Of the nodes, and of ranges of slots with the number of the node that serves them.
    pub(super) fn of(nodes: Vec<Arc<Node>>, owners: &[(&Range, usize)], slots: &Slots) -> Self {
        let owner = |slot: u32| {
            let mut all = owners.iter();
            all.find(|(range, _)| (range.from..=range.to).contains(&slot))
                .map(|(_, node)| *node)
        };
        let length = |(range, _): &(&Range, usize)| (range.to + 1).saturating_sub(range.from);
        Self {
            nodes,
            partitions: slots.partitions.iter().map(|slot| owner(*slot)).collect(),
            bell: owner(slots.bell),
            layout: owner(slots.layout),
            served: owners.iter().map(length).sum(),
        }
    }

    /// The node of a place.
    pub(in super::super) fn node(&self, at: At) -> Result<&Arc<Node>, RedisError> {
        self.index(at).and_then(|n| self.nodes.get(n)).ok_or_else(unserved)
    }

    pub(super) fn index(&self, at: At) -> Option<usize> {
        match at {
            At::Partition(partition) => self.partitions.get(usize::from(partition.0)).copied().flatten(),
            At::Bell => self.bell,
            At::Layout => self.layout,
            At::Any => Some(self.nodes.iter().position(|node| !node.is_away()).unwrap_or(0)),
        }
    }

    pub(super) fn has(&self, node: &Arc<Node>) -> bool {
        self.nodes.iter().any(|known| Arc::ptr_eq(known, node))
    }

    /// Every primary that serves slots.
    pub(in super::super) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// Whether all slots have a node.
    pub(in super::super) fn is_whole(&self) -> bool {
        self.served == 16_384
    }

    /// Whether both say the same, in whatever order.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let names = |map: &Self| {
            map.nodes
                .iter()
                .map(|node| node.name().to_owned())
                .collect::<BTreeSet<_>>()
        };
        let owners = |map: &Self| {
            let used = map.partitions.iter().chain([&map.bell, &map.layout]);
            let name = |n: &Option<usize>| Some(map.nodes.get((*n)?)?.name().to_owned());
            used.map(name).collect::<Vec<_>>()
        };
        names(self) == names(other) && owners(self) == owners(other)
    }
}

impl Slots {
    /// Of the tags of partitions, of the bells and of the layout.
    pub(super) fn of<'a>(tags: impl Iterator<Item = &'a str>, layout: &str) -> Self {
        Self {
            partitions: tags.map(key_slot).collect(),
            bell: key_slot(super::super::keys::BELL_TAG),
            layout: key_slot(layout),
        }
    }
}
