//! Picks the next request: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM '96) over
//! buckets of tokens. It has no clock and no lock.
//!
//! Each request gets a start tag: where the client's last one ended in virtual time, but
//! not before the present. The request with the least tag is next, once the buckets allow
//! it, so that clients who always have requests waiting get shares by weight, however
//! many each has.

use super::settings::Limits;
use super::who::Client;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet, VecDeque};

/// The capacity of a bucket, in seconds of its rate: a thread may wake late by that much without a
/// loss.
const BURST: f64 = 0.02;
/// By how much of virtual time, in seconds of all, a client may be behind and catch up:
/// a client with one request at a time always is.
const LAG: f64 = 0.02;
/// Clients that are remembered without need.
const CLIENTS_MAX: usize = 1024;

/// A request that waits, or has gone on.
pub(super) type Ticket = u64;

/// The next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// This request goes on.
    Go(Ticket),
    /// After this many nanoseconds, the next one may.
    Wait(u64),
    /// None waits.
    Idle,
}

/// Tokens that come at a rate. A request may take more than there are; then the next one
/// waits until the debt is paid.
#[derive(Debug)]
struct Bucket {
    rate: f64,
    tokens: f64,
    at_ns: u64,
}

impl Bucket {
    fn new(rate: f64, now_ns: u64) -> Self {
        Self { rate, tokens: rate * BURST, at_ns: now_ns }
    }

    /// Nanoseconds until it has tokens.
    fn ready_in(&mut self, now_ns: u64) -> u64 {
        let seconds = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        self.at_ns = self.at_ns.max(now_ns);
        self.fill(seconds);
        if self.tokens >= 0.0 { 0 } else { (-self.tokens / self.rate * 1e9).ceil() as u64 }
    }
}

impl Bucket {
    /// So much time passes.
    fn fill(&mut self, seconds: f64) {
        self.tokens = (self.tokens + seconds * self.rate).min(self.rate * BURST);
    }
}

/// The debt of a pair of buckets: bytes and operations, neither below 0.
pub(super) type Debt = (f64, f64);

/// Debts, for other buckets with the same rates.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Debts {
    all: Debt,
    clients: Vec<(Client, Debt)>,
}

/// The buckets of bytes and operations of all, or of one client.
#[derive(Debug)]
struct Buckets {
    bytes: Option<Bucket>,
    operations: Option<Bucket>,
}

impl Buckets {
    fn new(limits: Limits, now_ns: u64) -> Self {
        let bucket = |rate: Option<f64>| rate.map(|rate| Bucket::new(rate, now_ns));
        Self { bytes: bucket(limits.bandwidth), operations: bucket(limits.operations) }
    }

    fn ready_in(&mut self, now_ns: u64) -> u64 {
        self.each().map(|bucket| bucket.ready_in(now_ns)).max().unwrap_or(0)
    }

    fn take(&mut self, bytes: f64, operations: f64) {
        if let Some(bucket) = &mut self.bytes {
            bucket.tokens -= bytes;
        }
        if let Some(bucket) = &mut self.operations {
            bucket.tokens -= operations;
        }
    }

    fn debt(&mut self, now_ns: u64) -> Debt {
        self.ready_in(now_ns);
        let debt = |bucket: &Option<Bucket>| bucket.as_ref().map_or(0.0, |bucket| (-bucket.tokens).max(0.0));
        (debt(&self.bytes), debt(&self.operations))
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Bucket> {
        self.bytes.iter_mut().chain(&mut self.operations)
    }
}

#[derive(Debug)]
struct Account {
    weight: f64,
    /// Where its last request ended in virtual time.
    end: f64,
    own: Buckets,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    start: f64,
    bytes: f64,
}

/// The clients and their waiting requests.
#[derive(Debug)]
pub(super) struct Shares {
    limits: Limits,
    each: Limits,
    weights: HashMap<String, f64>,
    total: Buckets,
    clients: HashMap<Client, Account>,
    /// Clients with waiting requests.
    busy: HashSet<Client>,
    /// The present, in virtual time: seconds of the total rate.
    present: f64,
    last: Ticket,
}

impl Shares {
    pub(super) fn new(limits: Limits, each: Limits, weights: HashMap<String, f64>, now_ns: u64) -> Self {
        let (clients, busy) = (HashMap::new(), HashSet::new());
        let total = Buckets::new(limits, now_ns);
        Self { limits, each, weights, total, clients, busy, present: 0.0, last: 0 }
    }

    /// A request of the client comes, for one operation with so many bytes.
    pub(super) fn arrive(&mut self, client: &Client, bytes: u64, now_ns: u64) -> Ticket {
        let cost = self.cost(bytes);
        self.last += 1;
        let (ticket, earliest) = (self.last, self.present - LAG);
        let account = self.account(client, now_ns);
        let start = account.end.max(earliest);
        account.end = start + cost / account.weight;
        account.waiting.push_back(Waiting { ticket, start, bytes: bytes as f64 });
        self.busy.insert(client.clone());
        ticket
    }

    /// The next step. A request that goes on has taken its tokens.
    pub(super) fn next(&mut self, now_ns: u64) -> Next {
        if self.busy.is_empty() {
            return Next::Idle;
        }
        let wait = self.total.ready_in(now_ns);
        if wait > 0 {
            return Next::Wait(wait);
        }
        let (mut best, mut soonest): (Option<(f64, &Client)>, u64) = (None, u64::MAX);
        for client in &self.busy {
            let Some(account) = self.clients.get_mut(client) else { continue };
            let Some(first) = account.waiting.front() else { continue };
            let wait = account.own.ready_in(now_ns);
            if wait > 0 {
                soonest = soonest.min(wait);
            } else if best.is_none_or(|(start, _)| first.start < start) {
                best = Some((first.start, client));
            }
        }
        match best.map(|(_, client)| client.clone()) {
            Some(client) => self.go(&client).map_or(Next::Idle, Next::Go),
            None => Next::Wait(soonest),
        }
    }

    /// Gives back the part that a request of the client did not use.
    pub(super) fn give_back(&mut self, client: &Client, bytes: u64) {
        let cost = self.cost_of_bytes(bytes);
        self.total.take(-(bytes as f64), 0.0);
        if let Some(account) = self.clients.get_mut(client) {
            account.own.take(-(bytes as f64), 0.0);
            account.end -= cost / account.weight;
        }
    }

    /// The debts now.
    pub(super) fn debts(&mut self, now_ns: u64) -> Debts {
        let all = self.total.debt(now_ns);
        let clients =
            self.clients.iter_mut().map(|(client, account)| (client.clone(), account.own.debt(now_ns)));
        Debts { all, clients: clients.filter(|(_, debt)| *debt != (0.0, 0.0)).collect() }
    }

    /// Takes over the debts of another one.
    pub(super) fn owe(&mut self, debts: &Debts, now_ns: u64) {
        let owed = |(bytes, operations): Debt| (bytes.max(0.0), operations.max(0.0));
        let (bytes, operations) = owed(debts.all);
        self.total.take(bytes, operations);
        for (client, debt) in &debts.clients {
            let (bytes, operations) = owed(*debt);
            self.account(client, now_ns).own.take(bytes, operations);
        }
    }

    /// So much time has passed since others had these debts.
    pub(super) fn pay(&mut self, seconds: f64) {
        self.total.each().for_each(|bucket| bucket.fill(seconds));
        self.clients
            .values_mut()
            .flat_map(|account| account.own.each())
            .for_each(|bucket| bucket.fill(seconds));
    }

    /// How many clients are remembered.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.clients.len()
    }

    fn go(&mut self, client: &Client) -> Option<Ticket> {
        let account = self.clients.get_mut(client)?;
        let Waiting { ticket, start, bytes } = account.waiting.pop_front()?;
        account.own.take(bytes, 1.0);
        if account.waiting.is_empty() {
            self.busy.remove(client);
        }
        self.total.take(bytes, 1.0);
        self.present = self.present.max(start);
        // If no request waits, and none will have to, there is nothing to share, and time goes on
        // by the work done.
        if self.busy.is_empty() && self.total.each().all(|bucket| bucket.tokens >= 0.0) {
            self.present += self.cost(bytes as u64);
        }
        Some(ticket)
    }

    /// The part of a second of all that a request takes.
    fn cost(&self, bytes: u64) -> f64 {
        let of_operation = self.limits.operations.map_or(0.0, |rate| 1.0 / rate);
        of_operation.max(self.cost_of_bytes(bytes))
    }

    fn cost_of_bytes(&self, bytes: u64) -> f64 {
        self.limits.bandwidth.map_or(0.0, |rate| bytes as f64 / rate)
    }

    fn account(&mut self, client: &Client, now_ns: u64) -> &mut Account {
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(client) {
            let present = self.present;
            // A client that was away for long counts as a new one.
            self.clients.retain(|_, account| {
                !account.waiting.is_empty() || account.end > present - LAG || account.own.ready_in(now_ns) > 0
            });
        }
        let (each, weights) = (self.each, &self.weights);
        self.clients.entry(client.clone()).or_insert_with(|| Account {
            weight: weights.get(&client.name()).copied().unwrap_or(1.0),
            end: f64::MIN,
            own: Buckets::new(each, now_ns),
            waiting: VecDeque::new(),
        })
    }
}
