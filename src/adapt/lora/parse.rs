//! From the names and shapes of a LoRA file to typed adapters of the model's weights. No value is read here; adapters
//! refer to the file's tensors by their index. What cannot be used is counted and the rest kept.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::ops::Range;

use super::resolve::Targets;
use super::shapes;
use crate::weights::names::{self, Dialect, Member};

/// A tensor of the LoRA file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name as it stands in the file.
    pub name: String,
    /// Shape in ggml order, fastest first; empty for a scalar.
    pub shape: Vec<usize>,
}

/// Rows and columns of a weight seen as a matrix: rows are its slowest axis (outputs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Outputs.
    pub rows: usize,
    /// Inputs, times the kernel of a convolution.
    pub columns: usize,
}

/// A factor made of `up` (`[rank, rows]`) times `down` (`[columns, rank]`), or with a core between them
/// (`up` `[rank, rows]`, `core` `[kernel.., rank, rank]`, `down` `[inputs, rank]`). Indices of the file's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    /// Index of the tensor next to the output.
    pub up: usize,
    /// Index of the tensor next to the input.
    pub down: usize,
    /// Index of the core of a Tucker decomposition.
    pub core: Option<usize>,
    /// Whether `up` is stored with its axes exchanged (`[rows, rank]`), as LoHa and LoKr do when they have a core.
    pub up_transposed: bool,
    /// Length of the axis that is summed over.
    pub rank: usize,
    /// Size of the product.
    pub size: Matrix,
}

/// A factor of a Kronecker product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// One tensor, by its index.
    Full {
        /// Index of the tensor.
        index: usize,
        /// Its size as a matrix.
        size: Matrix,
    },
    /// A product of two, or three with a core.
    Product(Factor),
}

impl Outer {
    /// Size of the factor as a matrix.
    pub fn size(&self) -> Matrix {
        match self {
            Self::Full { size, .. } => *size,
            Self::Product(factor) => factor.size,
        }
    }
}

/// How a weight is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta {
    /// LoRA, LoCon: a product of low rank.
    LowRank(Factor),
    /// LoHa: the elementwise product of two low-rank products.
    Loha {
        /// First product.
        first: Factor,
        /// Second product.
        second: Factor,
    },
    /// LoKr: a Kronecker product.
    Lokr {
        /// Outer factor: its elements scale copies of `inner`.
        outer: Outer,
        /// Inner factor, with the kernel of a convolution.
        inner: Outer,
    },
    /// The difference itself, of a weight or a bias.
    Diff {
        /// Index of the tensor.
        index: usize,
    },
}

/// The adapter's own strength, which the caller's multiplier is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// 1.
    Unit,
    /// The scalar at this index divided by the rank.
    AlphaOverRank {
        /// Index of the scalar.
        alpha: usize,
        /// The rank.
        rank: usize,
    },
    /// The scalar at this index.
    Scalar(usize),
}

/// One change of (some rows of) one weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Canonical name of the weight.
    pub target: String,
    /// The weight's rows (its slowest axis) that are changed; all of them unless the weight is joined from several.
    pub rows: Range<usize>,
    /// Values per row.
    pub columns: usize,
    /// How.
    pub delta: Delta,
    /// How much.
    pub strength: Strength,
    /// Index of DoRA's norms. The recorded library ignores them, and so does [`super::math`].
    pub dora_scale: Option<usize>,
}

/// What a file holds for a model.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// Adapters, ordered by target and row.
    pub adapters: Vec<Adapter>,
    /// How many tensors of the file are used.
    pub used: usize,
    /// How many there are.
    pub total: usize,
    /// DoRA norms, which are known but ignored.
    pub ignored: usize,
    /// Names that belong to no adapter or no weight of this model.
    pub unmatched: Vec<String>,
    /// Weights whose adapter cannot be used, and why.
    pub malformed: Vec<(String, String)>,
}

impl Parsed {
    /// A line for the log when not everything could be used.
    pub fn warning(&self) -> Option<String> {
        let unused = self.total.saturating_sub(self.used + self.ignored);
        if unused == 0 && self.malformed.is_empty() {
            return None;
        }
        let mut text = format!("{} of {} LoRA tensors are used", self.used, self.total);
        if let Some(first) = self.unmatched.first() {
            text.push_str(&format!(
                "; {} match no weight of this model, first '{first}'",
                self.unmatched.len()
            ));
        }
        if let Some((target, why)) = self.malformed.first() {
            text.push_str(&format!(
                "; {} adapters cannot be used, first that of '{target}': {why}",
                self.malformed.len()
            ));
        }
        Some(text)
    }
}

/// Tensors found for one part of one weight.
type Members = BTreeMap<Member, usize>;

/// Finds the adapters of a LoRA file. `denoiser` is the prefix of the network that it is for
/// ([`names::DENOISER`] or [`names::HIGH_NOISE_DENOISER`]).
pub fn parse(entries: &[Entry], targets: &Targets, dialect: &Dialect, denoiser: &str) -> Parsed {
    let mut parsed = Parsed { total: entries.len(), ..Parsed::default() };
    let mut groups: BTreeMap<&str, BTreeMap<usize, Members>> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let key = names::lora(&entry.name, dialect);
        let place = key.as_ref().and_then(|key| Some((key.member, targets.find(key, denoiser)?)));
        let Some((member, (target, part))) = place else {
            parsed.unmatched.push(entry.name.clone());
            continue;
        };
        let members = groups.entry(target).or_default().entry(part).or_default();
        match members.entry(member) {
            Slot::Vacant(slot) => _ = slot.insert(index),
            Slot::Occupied(_) => {
                parsed
                    .malformed
                    .push((target.to_string(), format!("'{}' says it a second time", entry.name)));
            }
        }
    }
    for (target, parts) in groups {
        let Some(weight) = targets.shape(target) else { continue };
        parse_weight(entries, target, weight, parts, &mut parsed);
    }
    parsed
}

/// The adapters of one weight.
fn parse_weight(
    entries: &[Entry],
    target: &str,
    shape: &[usize],
    parts: BTreeMap<usize, Members>,
    parsed: &mut Parsed,
) {
    let Some(weight) = shapes::matrix(shape) else { return };
    let mut built = Vec::new();
    for (part, members) in parts {
        let group = Group { entries, members: &members, weight, shape };
        match group.delta() {
            Ok(Some(found)) => built.push((part, found, members)),
            Ok(None) => {
                // DoRA norms or a strength on their own
                let names = members.values().map(|&index| entries[index].name.clone());
                parsed.unmatched.extend(names);
            }
            Err(why) => parsed.malformed.push((target.to_string(), why)),
        }
    }
    let first_rows = built.first().map_or(0, |(_, found, _)| found.size.rows);
    let known: BTreeMap<usize, usize> =
        built.iter().map(|(part, found, _)| (*part, found.size.rows)).collect();
    for (part, found, members) in built {
        let Matrix { rows, columns } = found.size;
        let all_rows = weight.rows.saturating_mul(weight.columns) / columns.max(1);
        let before: Option<usize> =
            (0..part).try_fold(0usize, |sum, p| sum.checked_add(*known.get(&p).unwrap_or(&first_rows)));
        // the last part may be larger than the ones before it, which then tell nothing when they are missing
        let complete = (0..part).all(|p| known.contains_key(&p));
        let start = match before {
            Some(start) if start.saturating_add(rows) <= all_rows => start,
            _ if !complete && rows <= all_rows => all_rows - rows,
            _ => {
                let why = format!("part {part} has {rows} rows beyond the weight's {all_rows}");
                parsed.malformed.push((target.to_string(), why));
                continue;
            }
        };
        // only a matrix can be filled up by rows of zeros
        if part == 0 && known.len() == 1 && rows != all_rows && shape.len() != 2 {
            parsed
                .malformed
                .push((target.to_string(), format!("{rows} rows found, the weight has {all_rows}")));
            continue;
        }
        parsed.used += found.used.len();
        let dora_scale = members.get(&Member::DoraScale).copied();
        parsed.ignored += usize::from(dora_scale.is_some());
        parsed.adapters.push(Adapter {
            target: target.to_string(),
            rows: start..start + rows,
            columns,
            delta: found.delta,
            strength: found.strength,
            dora_scale,
        });
        let left =
            members.iter().filter(|(m, index)| **m != Member::DoraScale && !found.used.contains(index));
        parsed.unmatched.extend(left.map(|(_, &index)| entries[index].name.clone()));
    }
}

/// The members of one part of one weight.
struct Group<'g> {
    entries: &'g [Entry],
    members: &'g Members,
    weight: Matrix,
    shape: &'g [usize],
}

/// An adapter before its rows' place is known.
struct Found {
    delta: Delta,
    strength: Strength,
    size: Matrix,
    used: Vec<usize>,
}

impl Group<'_> {
    fn get(&self, member: Member) -> Option<usize> {
        self.members.get(&member).copied()
    }

    fn shape(&self, index: usize) -> &[usize] {
        &self.entries[index].shape
    }

    /// The adapter; when a file has several kinds for one weight the recorded library's order decides.
    fn delta(&self) -> Result<Option<Found>, String> {
        use Member::*;
        let has = |members: &[Member]| members.iter().any(|m| self.members.contains_key(m));
        let whole = |members: &[Member]| members.iter().all(|m| self.members.contains_key(m));
        let is_lora = has(&[Up, Down, Mid]);
        if is_lora && (whole(&[Up, Down]) || !has(&[Diff])) {
            return self.low_rank().map(Some);
        }
        if has(&[Diff]) {
            return self.diff().map(Some);
        }
        if has(&[HadaW1A, HadaW1B, HadaW2A, HadaW2B, HadaT1, HadaT2]) {
            return self.loha().map(Some);
        }
        if has(&[LokrW1, LokrW1A, LokrW1B, LokrW2, LokrW2A, LokrW2B, LokrT2]) {
            return self.lokr().map(Some);
        }
        Ok(None)
    }

    fn need(&self, member: Member) -> Result<usize, String> {
        self.get(member).ok_or_else(|| format!("its {member:?} is missing"))
    }

    /// Kernel of the weight: the product of the axes before its inputs.
    fn kernel(&self) -> usize {
        match self.shape {
            [kernel @ .., _, _] => kernel.iter().product::<usize>().max(1),
            _ => 1,
        }
    }

    fn low_rank(&self) -> Result<Found, String> {
        let factor =
            self.factor(self.need(Member::Up)?, self.need(Member::Down)?, self.get(Member::Mid), false)?;
        self.found(Delta::LowRank(factor), Some(factor.rank), factor.size)
    }

    fn loha(&self) -> Result<Found, String> {
        let product = |a, b, core| {
            let core = self.get(core);
            self.factor(self.need(a)?, self.need(b)?, core, core.is_some())
        };
        let first = product(Member::HadaW1A, Member::HadaW1B, Member::HadaT1)?;
        let second = product(Member::HadaW2A, Member::HadaW2B, Member::HadaT2)?;
        if first.size != second.size {
            return Err(format!("its products have {:?} and {:?}", first.size, second.size));
        }
        self.found(Delta::Loha { first, second }, Some(first.rank), first.size)
    }

    /// A product that must give rows of the weight.
    fn factor(
        &self,
        up: usize,
        down: usize,
        core: Option<usize>,
        up_transposed: bool,
    ) -> Result<Factor, String> {
        let (up_shape, down_shape) = (self.shape(up), self.shape(down));
        let (rank, size) = match core {
            None => shapes::rank(up_shape, down_shape, self.weight)?,
            Some(core) => {
                shapes::core_rank(up_shape, self.shape(core), down_shape, self.weight, self.kernel())?
            }
        };
        Ok(Factor { up, down, core, up_transposed, rank, size })
    }

    fn diff(&self) -> Result<Found, String> {
        let index = self.need(Member::Diff)?;
        let count = shapes::count(self.shape(index)).unwrap_or(0);
        let whole_rows = count > 0 && count.is_multiple_of(self.weight.columns);
        if !whole_rows || count / self.weight.columns > self.weight.rows {
            return Err(format!("difference of {:?}, weight of {:?}", self.shape(index), self.shape));
        }
        let size = Matrix { rows: count / self.weight.columns, columns: self.weight.columns };
        self.found(Delta::Diff { index }, None, size)
    }

    fn lokr(&self) -> Result<Found, String> {
        let outer = self.outer(Member::LokrW1, Member::LokrW1A, Member::LokrW1B, None, 1)?;
        let inner = self.outer(
            Member::LokrW2,
            Member::LokrW2A,
            Member::LokrW2B,
            Some(Member::LokrT2),
            self.kernel(),
        )?;
        let (a, b) = (outer.size(), inner.size());
        let rows = a.rows.checked_mul(b.rows).filter(|&rows| rows <= self.weight.rows);
        let (Some(rows), Some(columns)) = (rows, a.columns.checked_mul(b.columns)) else {
            return Err(format!("Kronecker factors {a:?} and {b:?} exceed the weight's {:?}", self.weight));
        };
        if columns != self.weight.columns {
            return Err(format!(
                "Kronecker factors {a:?} and {b:?} do not make the weight's {:?}",
                self.weight
            ));
        }
        let rank = [inner, outer].iter().find_map(|o| match o {
            Outer::Product(factor) => Some(factor.rank),
            Outer::Full { .. } => None,
        });
        self.found(Delta::Lokr { outer, inner }, rank, Matrix { rows, columns })
    }

    /// A Kronecker factor: one tensor or a product. `kernel` extents belong to the inner factor of a convolution.
    fn outer(
        &self,
        full: Member,
        a: Member,
        b: Member,
        core: Option<Member>,
        kernel: usize,
    ) -> Result<Outer, String> {
        if let Some(index) = self.get(full) {
            let size = shapes::matrix(self.shape(index)).ok_or_else(|| format!("its {full:?} is empty"))?;
            return Ok(Outer::Full { index, size });
        }
        let (up, down) = (self.need(a)?, self.need(b)?);
        let core = core.and_then(|core| self.get(core));
        let (up_shape, down_shape) = (self.shape(up), self.shape(down));
        let (Some(ups), Some(downs)) = (shapes::count(up_shape), shapes::count(down_shape)) else {
            return Err("its extents overflow".into());
        };
        let fits = |rank: usize| {
            let core_fits = core.is_none_or(|core| {
                let values = shapes::count(self.shape(core));
                values.is_some() && rank.checked_mul(rank).and_then(|n| n.checked_mul(kernel)) == values
            });
            rank > 0
                && ups > 0
                && downs > 0
                && ups.is_multiple_of(rank)
                && downs.is_multiple_of(rank)
                && core_fits
        };
        let rank = shapes::candidates(up_shape, down_shape).find(|&rank| fits(rank));
        let rank =
            rank.ok_or_else(|| format!("{a:?} {up_shape:?} and {b:?} {down_shape:?} do not fit together"))?;
        let columns = downs / rank * if core.is_some() { kernel } else { 1 };
        let size = Matrix { rows: ups / rank, columns };
        Ok(Outer::Product(Factor { up, down, core, up_transposed: core.is_some(), rank, size }))
    }

    /// Puts an adapter together with its strength. `rank` is `None` for kinds which alpha does not scale.
    fn found(&self, delta: Delta, rank: Option<usize>, size: Matrix) -> Result<Found, String> {
        let mut used = indices(&delta);
        let scalar = |member| self.get(member).filter(|&index| shapes::count(self.shape(index)) == Some(1));
        let is_low_rank = matches!(delta, Delta::LowRank(_));
        let strength = match (scalar(Member::Scale).filter(|_| is_low_rank), scalar(Member::Alpha), rank) {
            (Some(index), _, _) => Strength::Scalar(index),
            (None, Some(alpha), Some(rank)) => Strength::AlphaOverRank { alpha, rank },
            _ => Strength::Unit,
        };
        // a strength that has no say here (alpha beside a scale, or of a full difference) is in order all the same
        used.extend([Member::Scale, Member::Alpha].into_iter().filter_map(scalar));
        Ok(Found { delta, strength, size, used })
    }
}

/// Indices of the tensors that make up a difference.
fn indices(delta: &Delta) -> Vec<usize> {
    let factor = |f: &Factor| [Some(f.up), Some(f.down), f.core].into_iter().flatten().collect::<Vec<_>>();
    let outer = |o: &Outer| match o {
        Outer::Full { index, .. } => vec![*index],
        Outer::Product(f) => factor(f),
    };
    match delta {
        Delta::LowRank(f) => factor(f),
        Delta::Loha { first, second } => [factor(first), factor(second)].concat(),
        Delta::Lokr { outer: a, inner: b } => [outer(a), outer(b)].concat(),
        Delta::Diff { index } => vec![*index],
    }
}
