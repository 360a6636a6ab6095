//! What the cache holds: a list of ids for each of its rows.

use ember_model::{Gpt, KvCache};

use super::{ask::AskedRow, limits::Limits};
use crate::tokens::common_prefix;

/// A row of the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// The ids that it has read.
    pub(super) ids: Vec<u32>,
    /// How many of them, from the first on, were read several at once: those that others may share.
    shared: usize,
    /// The request that reads on; none where it is kept for others.
    pub(super) owner: Option<u64>,
    /// When it was last of use.
    used: u64,
}

/// The cache and what it holds.
pub(super) struct HeldRows {
    pub(super) cache: KvCache,
    /// For each row of the cache; the first is always empty, so that there is one to fork from.
    pub(super) rows: Vec<Held>,
    slots: usize,
    now: u64,
}

/// Most rows that are kept for others: every request looks through them.
const MOST_IDLE: usize = 256;

/// Where a row of a request begins.
#[derive(Clone, Copy, Default)]
struct Beginning {
    /// The row of the cache that it forks from, and how much it takes of it.
    parent: usize,
    len: usize,
    /// How much of that others may share.
    shared: usize,
    from_others: bool,
}

impl HeldRows {
    pub(super) fn new(model: &Gpt, limits: Limits) -> Self {
        let cache = KvCache::populated(model.config(), 1, limits.slots, &model.device());
        Self { cache, rows: vec![Held::default()], slots: limits.usable_slots(), now: 0 }
    }

    /// Positions in use.
    pub(super) fn in_use(&self) -> usize {
        self.cache.in_use(0..self.rows.len())
    }

    /// Puts rows in the place of those of a request: each begins as what is held with the longest
    /// common beginning, short of as many of its last ids as the logits are wanted of. Gives how
    /// many tokens came from other requests.
    pub(super) fn take_up(&mut self, request: u64, rows: &[AskedRow]) -> u64 {
        self.now += 1;
        let beginnings: Vec<Beginning> = rows.iter().map(|row| self.beginning(request, row)).collect();
        // The same rows in the same order, as in nearly every step: they stay where they are.
        if beginnings.iter().map(|beginning| beginning.parent).eq(self.owned_by(request)) {
            self.shorten(&beginnings);
            return 0;
        }
        for beginning in beginnings.iter().filter(|beginning| beginning.from_others) {
            self.rows[beginning.parent].used = self.now;
        }
        self.replace(request, rows, &beginnings);
        beginnings.iter().filter(|beginning| beginning.from_others).map(|beginning| beginning.len as u64).sum()
    }

    /// Cuts rows that stay where they are to what they begin with.
    fn shorten(&mut self, beginnings: &[Beginning]) {
        for &Beginning { parent, len, shared, .. } in beginnings {
            self.cache.truncate(parent, len);
            let row = &mut self.rows[parent];
            row.ids.truncate(len);
            (row.shared, row.used) = (shared, self.now);
        }
    }

    /// Forks new rows, behind all others, and drops those that the request had.
    fn replace(&mut self, request: u64, rows: &[AskedRow], beginnings: &[Beginning]) {
        let staying: Vec<usize> = (0..self.rows.len()).filter(|&row| self.rows[row].owner != Some(request)).collect();
        let parents: Vec<usize> = staying.iter().copied().chain(beginnings.iter().map(|row| row.parent)).collect();
        self.cache.select(&parents);
        let mut old = std::mem::take(&mut self.rows);
        self.rows = staying.iter().map(|&row| std::mem::take(&mut old[row])).collect();
        for (&Beginning { len, shared, .. }, AskedRow { ids, .. }) in beginnings.iter().zip(rows) {
            self.cache.truncate(self.rows.len(), len);
            self.rows.push(Held { ids: ids[..len].to_vec(), shared, owner: Some(request), used: self.now });
        }
    }

    /// Where a row begins: with what it has read itself, or with the longest beginning that others
    /// may share, short of the last ids that logits are wanted of.
    fn beginning(&self, request: u64, &AskedRow { ref ids, count, from }: &AskedRow) -> Beginning {
        let own = from.map(|from| {
            let parent = self.place(request, from);
            let row = &self.rows[parent];
            let len = common_prefix(&row.ids, ids).min(ids.len() - count);
            Beginning { parent, len, shared: row.shared.min(len), from_others: false }
        });
        // What it read one by one it would have read so alone, too, whatever others hold.
        if let Some(own) = own.as_ref().filter(|own| own.len > own.shared || own.len + count == ids.len()) {
            return *own;
        }
        let others = (0..self.rows.len()).filter(|&row| self.rows[row].owner != Some(request)).map(|parent| {
            let row = &self.rows[parent];
            // One position by itself would be read another way than with those before it.
            let most = ids.len() - count.max(2).min(ids.len());
            let len = common_prefix(&row.ids[..row.shared], ids).min(most);
            Beginning { parent, len, shared: len, from_others: true }
        });
        others.chain(own).max_by_key(|beginning| beginning.len).unwrap_or_default()
    }

    /// Where a request's row is in the cache.
    pub(super) fn place(&self, request: u64, row: usize) -> usize {
        self.owned_by(request).next().unwrap_or(0) + row
    }

    /// A row has read these ids behind those before.
    pub(super) fn has_read(&mut self, row: usize, ids: &[u32]) {
        let held = &mut self.rows[row];
        if held.shared == held.ids.len() && ids.len() > 1 {
            held.shared += ids.len();
        }
        held.ids.extend_from_slice(ids);
    }

    /// A request is over: what others may share of its rows stays, once.
    pub(super) fn let_go(&mut self, request: u64) {
        let own: Vec<usize> = self.owned_by(request).collect();
        for &row in &own {
            let held = &mut self.rows[row];
            held.owner = None;
            held.ids.truncate(held.shared);
            self.cache.truncate(row, held.ids.len());
        }
        let ids = |row: usize| &self.rows[row].ids;
        let is_continued = |row: usize, by: usize| ids(by).len() > ids(row).len() && ids(by).starts_with(ids(row));
        // Of equal rows one stays: that of another request, else the first.
        let is_repeated = |row: usize, by: usize| ids(by) == ids(row) && (by < row || !own.contains(&by));
        let all = 0..self.rows.len();
        let is_of_use = |&row: &usize| {
            if row == 0 {
                true // the empty one
            } else if own.contains(&row) {
                !ids(row).is_empty() && !all.clone().any(|other| is_continued(row, other) || is_repeated(row, other))
            } else {
                self.rows[row].owner.is_some() || !own.iter().any(|&other| is_continued(row, other))
            }
        };
        let staying: Vec<usize> = all.clone().filter(is_of_use).collect();
        self.keep(&staying);
        self.make_room(0);
    }

    /// The rows of a request, which follow one another.
    fn owned_by(&self, request: u64) -> impl Iterator<Item = usize> {
        (0..self.rows.len()).filter(move |&row| self.rows[row].owner == Some(request))
    }

    /// Forgets what was least recently of use until there is room for `more` positions, or nothing
    /// is left that could be forgotten.
    pub(super) fn make_room(&mut self, more: usize) {
        loop {
            let idle = (1..self.rows.len()).filter(|&row| self.rows[row].owner.is_none());
            if idle.clone().count() <= MOST_IDLE && self.in_use() + more <= self.slots {
                break;
            }
            let Some(oldest) = idle.min_by_key(|&row| self.rows[row].used) else { break };
            let staying: Vec<usize> = (0..self.rows.len()).filter(|&row| row != oldest).collect();
            self.keep(&staying);
        }
    }

    fn keep(&mut self, rows: &[usize]) {
        if rows.len() < self.rows.len() {
            self.cache.select(rows);
            self.rows = rows.iter().map(|&row| std::mem::take(&mut self.rows[row])).collect();
        }
    }
}
