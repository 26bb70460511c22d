//! Further connections of a rank that has attached over its first one.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use quinn::Connection;
use tokio::sync::mpsc;

use crate::quic::MAX_CONNECTIONS;

/// The ranks of a listener that other connections may join, by the key that they attached with.
#[derive(Clone, Debug, Default)]
pub(super) struct Joins(Arc<Mutex<HashMap<u128, mpsc::Sender<Connection>>>>);

impl Joins {
    /// Lets connections join with this key until the result is dropped.
    pub(super) fn open(&self, key: u128) -> Result<Joined, KeyTaken> {
        let mut ranks = self.0.lock();
        let Entry::Vacant(rank) = ranks.entry(key) else { return Err(KeyTaken) };
        let (joins, joined) = mpsc::channel(MAX_CONNECTIONS);
        rank.insert(joins);
        Ok(Joined { key, joins: self.clone(), joined, connections: Vec::new() })
    }

    /// Adds a connection to the rank with this key. Returns false if there is no such rank, or it has no room.
    pub(super) fn join(&self, key: u128, connection: Connection) -> bool {
        self.0.lock().get(&key).is_some_and(|rank| rank.try_send(connection).is_ok())
    }
}

/// Another rank has the key.
#[derive(Debug)]
pub(super) struct KeyTaken;

/// The connections that have joined a rank.
#[derive(Debug)]
pub(super) struct Joined {
    key: u128,
    joins: Joins,
    joined: mpsc::Receiver<Connection>,
    connections: Vec<Connection>,
}

impl Joined {
    /// Returns the connections that have joined so far.
    pub(super) fn connections(&mut self) -> &[Connection] {
        while self.connections.len() + 1 < MAX_CONNECTIONS
            && let Ok(connection) = self.joined.try_recv()
        {
            self.connections.push(connection);
        }
        &self.connections
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.joins.0.lock().remove(&self.key);
    }
}
