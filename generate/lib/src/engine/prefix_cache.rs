//! The prefix cache: the KV cache, and the list of ids in each of its rows. By these a request
//! finds the prefixes that others have computed.

use ember_model::{Gpt, KvCache};

use super::{limits::Limits, messages::QueryRow};
use crate::tokens::common_prefix;

/// One row of the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct CachedRow {
    /// The ids in the cache.
    pub(super) ids: Vec<u32>,
    /// Length of the prefix that was read several ids at a time, which other requests may share.
    shareable: usize,
    /// The request that extends the row; `None` if it is kept for later requests.
    pub(super) owner: Option<u64>,
    /// Logical time of the last use.
    last_used: u64,
}

/// The KV cache and the contents of its rows.
pub(super) struct PrefixCache {
    pub(super) cache: KvCache,
    /// One entry per cache row. Row 0 is always empty, so that there is always one to fork from.
    pub(super) rows: Vec<CachedRow>,
    usable_positions: usize,
    now: u64,
}

/// Most idle rows kept for later requests; every query searches them.
const MAX_IDLE: usize = 256;

/// The cached prefix that a row of a query starts from.
#[derive(Clone, Copy, Default)]
struct Prefix {
    /// The cache row to fork from.
    parent: usize,
    /// Its ids that are reused.
    len: usize,
    /// How many of those other requests may share.
    shareable: usize,
    /// Whether the parent belongs to another request, or to none.
    from_other: bool,
}

impl PrefixCache {
    pub(super) fn new(model: &Gpt, limits: Limits) -> Self {
        let cache = KvCache::populated(model.config(), 1, limits.positions, &model.device());
        Self { cache, rows: vec![CachedRow::default()], usable_positions: limits.usable_positions(), now: 0 }
    }

    /// Positions in use.
    pub(super) fn in_use(&self) -> usize {
        self.cache.in_use(0..self.rows.len())
    }

    /// Replaces a request's rows by those of its query. Each starts from the longest cached prefix,
    /// short of the last ids, whose logits are wanted. Returns how many tokens came from other
    /// requests.
    pub(super) fn assign(&mut self, request: u64, rows: &[QueryRow]) -> u64 {
        self.now += 1;
        let prefixes: Vec<Prefix> = rows.iter().map(|row| self.prefix(request, row)).collect();
        // The usual case of a decode step: the same rows in the same order stay in place.
        if prefixes.iter().map(|prefix| prefix.parent).eq(self.owned_by(request)) {
            self.truncate_in_place(&prefixes);
            return 0;
        }
        for prefix in prefixes.iter().filter(|prefix| prefix.from_other) {
            self.rows[prefix.parent].last_used = self.now;
        }
        self.replace(request, rows, &prefixes);
        prefixes.iter().filter(|prefix| prefix.from_other).map(|prefix| prefix.len as u64).sum()
    }

    /// Truncates rows that stay in place to their reused prefixes.
    fn truncate_in_place(&mut self, prefixes: &[Prefix]) {
        for &Prefix { parent, len, shareable, .. } in prefixes {
            self.cache.truncate(parent, len);
            let row = &mut self.rows[parent];
            row.ids.truncate(len);
            (row.shareable, row.last_used) = (shareable, self.now);
        }
    }

    /// Forks the request's new rows behind all others, and drops its old ones.
    fn replace(&mut self, request: u64, rows: &[QueryRow], prefixes: &[Prefix]) {
        let kept: Vec<usize> = (0..self.rows.len()).filter(|&row| self.rows[row].owner != Some(request)).collect();
        let parents: Vec<usize> = kept.iter().copied().chain(prefixes.iter().map(|row| row.parent)).collect();
        self.cache.select(&parents);
        let mut old = std::mem::take(&mut self.rows);
        self.rows = kept.iter().map(|&row| std::mem::take(&mut old[row])).collect();
        for (&Prefix { len, shareable, .. }, QueryRow { ids, .. }) in prefixes.iter().zip(rows) {
            self.cache.truncate(self.rows.len(), len);
            let (ids, owner) = (ids[..len].to_vec(), Some(request));
            self.rows.push(CachedRow { ids, shareable, owner, last_used: self.now });
        }
    }

    /// The prefix to start a row from: what the row itself has cached, or the longest shareable
    /// prefix of another row; short of the last ids, whose logits are wanted.
    fn prefix(&self, request: u64, &QueryRow { ref ids, count, from }: &QueryRow) -> Prefix {
        let own = from.map(|from| {
            let parent = self.cache_row(request, from);
            let row = &self.rows[parent];
            let len = common_prefix(&row.ids, ids).min(ids.len() - count);
            Prefix { parent, len, shareable: row.shareable.min(len), from_other: false }
        });
        // Keep what the row itself decoded one by one: alone it would have done so, too. And
        // nothing is gained from other rows if all but the wanted ids are cached already.
        if let Some(own) = own.as_ref().filter(|own| own.len > own.shareable || own.len + count == ids.len()) {
            return *own;
        }
        let others = (0..self.rows.len()).filter(|&row| self.rows[row].owner != Some(request)).map(|parent| {
            let row = &self.rows[parent];
            // Leave at least two ids: a single position takes another path through attention.
            let most = ids.len() - count.max(2).min(ids.len());
            let len = common_prefix(&row.ids[..row.shareable], ids).min(most);
            Prefix { parent, len, shareable: len, from_other: true }
        });
        others.chain(own).max_by_key(|prefix| prefix.len).unwrap_or_default()
    }

    /// The cache row of a request's row.
    pub(super) fn cache_row(&self, request: u64, row: usize) -> usize {
        self.owned_by(request).next().unwrap_or(0) + row
    }

    /// Records that these ids were appended to a row.
    pub(super) fn append(&mut self, row: usize, ids: &[u32]) {
        let cached = &mut self.rows[row];
        if cached.shareable == cached.ids.len() && ids.len() > 1 {
            cached.shareable += ids.len();
        }
        cached.ids.extend_from_slice(ids);
    }

    /// Ends a request. Keeps one copy of the shareable prefixes of its rows.
    pub(super) fn release(&mut self, request: u64) {
        let own: Vec<usize> = self.owned_by(request).collect();
        for &row in &own {
            let cached = &mut self.rows[row];
            cached.owner = None;
            cached.ids.truncate(cached.shareable);
            self.cache.truncate(row, cached.ids.len());
        }
        let ids = |row: usize| &self.rows[row].ids;
        let is_continued = |row: usize, by: usize| ids(by).len() > ids(row).len() && ids(by).starts_with(ids(row));
        // Of equal rows one is kept: another request's if there is one, else the first.
        let is_repeated = |row: usize, by: usize| ids(by) == ids(row) && (by < row || !own.contains(&by));
        let all = 0..self.rows.len();
        let is_kept = |&row: &usize| {
            if row == 0 {
                true // the empty row
            } else if own.contains(&row) {
                !ids(row).is_empty() && !all.clone().any(|other| is_continued(row, other) || is_repeated(row, other))
            } else {
                self.rows[row].owner.is_some() || !own.iter().any(|&other| is_continued(row, other))
            }
        };
        let kept: Vec<usize> = all.clone().filter(is_kept).collect();
        self.retain_rows(&kept);
        self.make_room(0);
    }

    /// The cache rows of a request; they are contiguous.
    fn owned_by(&self, request: u64) -> impl Iterator<Item = usize> {
        (0..self.rows.len()).filter(move |&row| self.rows[row].owner == Some(request))
    }

    /// Evicts the least recently used idle rows until there is room for `more` positions, or no
    /// idle row is left.
    pub(super) fn make_room(&mut self, more: usize) {
        loop {
            let idle = (1..self.rows.len()).filter(|&row| self.rows[row].owner.is_none());
            if idle.clone().count() <= MAX_IDLE && self.in_use() + more <= self.usable_positions {
                break;
            }
            let Some(oldest) = idle.min_by_key(|&row| self.rows[row].last_used) else { break };
            let kept: Vec<usize> = (0..self.rows.len()).filter(|&row| row != oldest).collect();
            self.retain_rows(&kept);
        }
    }

    fn retain_rows(&mut self, rows: &[usize]) {
        if rows.len() < self.rows.len() {
            self.cache.select(rows);
            self.rows = rows.iter().map(|&row| std::mem::take(&mut self.rows[row])).collect();
        }
    }
}
