//! Finding special tokens and custom words in a text.
#![forbid(unsafe_code)]

/// A part of a text: ordinary bytes, or an entry of one of the tables.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'t> {
    Text(&'t [u8]),
    Entry { table: usize, index: usize },
}

/// Which of several entries that start at the same place is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The one listed first; a shorter one may hide a longer one, as in the recorded tokens.
    First,
    /// The longest.
    Longest,
}

/// A prefix tree over byte strings.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Children of each node, sorted by byte.
    children: Vec<Vec<(u8, u32)>>,
    /// Entry that ends at the node.
    entry: Vec<Option<usize>>,
    starts: [bool; 256],
    choice: Choice,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(choice: Choice) -> Self {
        Self { children: vec![Vec::new()], entry: vec![None], starts: [false; 256], choice }
    }

    /// Adds `word` as entry `index`; an empty word is never found, an earlier equal word stays.
    pub(crate) fn insert(&mut self, word: &[u8], index: usize) {
        let Some(&first) = word.first() else { return };
        self.starts[usize::from(first)] = true;
        let mut node = 0;
        for &b in word {
            node = match self.children[node].binary_search_by_key(&b, |c| c.0) {
                Ok(i) => self.children[node][i].1 as usize,
                Err(i) => {
                    let new = self.children.len();
                    self.children[node].insert(i, (b, new as u32));
                    self.children.push(Vec::new());
                    self.entry.push(None);
                    new
                }
            };
        }
        self.entry[node].get_or_insert(index);
    }

    /// Entry at the start of `text` and its length.
    pub(crate) fn at(&self, text: &[u8]) -> Option<(usize, usize)> {
        let mut found: Option<(usize, usize)> = None;
        let mut node = 0;
        for (i, &b) in text.iter().enumerate() {
            let Ok(child) = self.children[node].binary_search_by_key(&b, |c| c.0) else { break };
            node = self.children[node][child].1 as usize;
            if let Some(index) = self.entry[node] {
                let better = match (self.choice, found) {
                    (Choice::First, Some((old, _))) => index < old,
                    _ => true,
                };
                if better {
                    found = Some((index, i + 1));
                }
            }
        }
        found
    }

    /// Position, entry and length of the first match at or after `from`.
    pub(crate) fn next(&self, text: &[u8], from: usize) -> Option<(usize, usize, usize)> {
        (from..text.len()).filter(|&i| self.starts[usize::from(text[i])]).find_map(|i| {
            let (entry, length) = self.at(&text[i..])?;
            Some((i, entry, length))
        })
    }
}

/// Cuts `text` at the entries of the tables; at one place an earlier table wins.
pub(crate) fn split<'t>(text: &'t [u8], tables: &[&Table]) -> Vec<Piece<'t>> {
    let mut pieces = Vec::new();
    let mut upcoming: Vec<_> = tables.iter().map(|t| t.next(text, 0)).collect();
    let mut done = 0;
    loop {
        for (table, hit) in tables.iter().zip(&mut upcoming) {
            if hit.is_some_and(|(at, ..)| at < done) {
                *hit = table.next(text, done);
            }
        }
        let first = upcoming.iter().enumerate().filter_map(|(t, hit)| hit.map(|(at, ..)| (at, t))).min();
        let Some((at, t)) = first else { break };
        let Some((_, entry, length)) = upcoming[t] else { break };
        if at > done {
            pieces.push(Piece::Text(&text[done..at]));
        }
        pieces.push(Piece::Entry { table: t, index: entry });
        done = at + length;
    }
    if done < text.len() {
        pieces.push(Piece::Text(&text[done..]));
    }
    pieces
}
