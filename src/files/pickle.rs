//! A pickle machine that builds data and calls nothing.
//!
//! It knows the tensors of torch, containers, numbers and texts. A name that a pickle merely mentions is kept as a
//! name; anything that would call one outside the list below is refused by that name. Values live in one
//! list and refer to each other by number, so cycles and deep nesting cost nothing and cannot overflow the stack.
//!
//! Opcodes: `Lib/pickletools.py` of CPython.
#![forbid(unsafe_code)]

use super::dtype::Dtype;
use super::limits;
use super::pickle_calls::refusal;
use std::collections::HashMap;

/// Number of a value.
pub(super) type Id = u32;

/// A failure in words; the caller adds the file.
pub(super) type Outcome<T> = std::result::Result<T, String>;

#[derive(Debug)]
pub(super) enum Node<'a> {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a [u8]),
    /// Module and name.
    Global(&'a str, &'a str),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// Number of a storage.
    Storage(Id),
    /// Number of a tensor.
    Tensor(Id),
    /// Something harmless that is not needed.
    Opaque,
}

/// A block of elements that tensors share.
#[derive(Debug, Clone)]
pub(super) struct Storage {
    pub key: String,
    /// The type, or the name of one that is not supported. Untyped storages count bytes.
    pub dtype: Result<Dtype, String>,
    /// Elements of the whole storage.
    pub elements: u64,
    /// First element of this view of it.
    pub first: u64,
}

/// A tensor as the pickle describes it: extents and strides slowest axis first, counted in elements.
#[derive(Debug)]
pub(super) struct RawTensor {
    pub storage: Id,
    pub dtype: Result<Dtype, String>,
    pub first: i64,
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
}

/// What one pickle holds.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    pub nodes: Vec<Node<'a>>,
    pub storages: Vec<Storage>,
    pub tensors: Vec<RawTensor>,
    pub root: Id,
    /// Bytes used up, since several pickles may follow each other.
    pub len: usize,
}

impl<'a> Pickle<'a> {
    pub(super) fn node(&self, id: Id) -> &Node<'a> {
        &self.nodes[id as usize]
    }

    /// Text of a node.
    pub(super) fn text(&self, id: Id) -> Option<&'a str> {
        match *self.node(id) {
            Node::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// Runs the pickle at the start of `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Outcome<Pickle<'_>> {
    let mut machine = Machine {
        bytes,
        pos: 0,
        nodes: vec![Node::None, Node::Bool(false), Node::Bool(true)],
        storages: Vec::new(),
        tensors: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        copied: 0,
    };
    for _ in 0..limits::PICKLE_STEPS {
        let at = machine.pos;
        let op = machine.take(1)?[0];
        match machine.step(op) {
            Ok(None) => {}
            Ok(Some(root)) => {
                let Machine { nodes, storages, tensors, pos, .. } = machine;
                return Ok(Pickle { nodes, storages, tensors, root, len: pos });
            }
            Err(message) => return Err(format!("{message} (pickle operation 0x{op:02x} at byte {at})")),
        }
    }
    Err(format!("a pickle has more than {} operations", limits::PICKLE_STEPS))
}

/// Longest name or number written as text.
const LINE_BYTES: usize = 1024;

/// Numbers of the values that need no node of their own.
const NONE: Id = 0;
const FALSE: Id = 1;
const TRUE: Id = 2;

pub(super) struct Machine<'a> {
    bytes: &'a [u8],
    pos: usize,
    nodes: Vec<Node<'a>>,
    pub(super) storages: Vec<Storage>,
    pub(super) tensors: Vec<RawTensor>,
    stack: Vec<Id>,
    /// Heights of the stack at each open mark.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    /// Values copied from one container to another.
    copied: usize,
}

impl<'a> Machine<'a> {
    /// Copies are not bounded by the number of operations, so they are counted.
    pub(super) fn charge(&mut self, copies: usize) -> Outcome<()> {
        self.copied += copies;
        if self.copied > limits::PICKLE_STEPS {
            return Err("a pickle copies too many values".into());
        }
        Ok(())
    }

    fn take(&mut self, len: usize) -> Outcome<&'a [u8]> {
        let end = self.pos.checked_add(len).filter(|&e| e <= self.bytes.len());
        let end = end.ok_or("a pickle ends too early")?;
        let taken = &self.bytes[self.pos..end];
        self.pos = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// Bytes up to the next line end, which is dropped.
    fn line(&mut self) -> Outcome<&'a [u8]> {
        let rest = &self.bytes[self.pos..];
        let rest = &rest[..rest.len().min(LINE_BYTES)];
        let len = rest.iter().position(|&b| b == b'\n').ok_or("a pickle ends within a line")?;
        self.pos += len + 1;
        Ok(&rest[..len])
    }

    fn text_line(&mut self) -> Outcome<&'a str> {
        std::str::from_utf8(self.line()?).map_err(|_| "a name is no UTF-8".into())
    }

    pub(super) fn push_id(&mut self, id: Id) {
        self.stack.push(id);
    }

    pub(super) fn push(&mut self, node: Node<'a>) {
        // steps are limited to far less than u32::MAX and each makes one node at most
        let id = self.nodes.len() as Id;
        self.nodes.push(node);
        self.stack.push(id);
    }

    /// Takes the top, which must lie above the last mark.
    pub(super) fn pop(&mut self) -> Outcome<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err("a pickle takes a value from an empty stack".into());
        }
        self.stack.pop().ok_or_else(|| "a pickle takes a value from an empty stack".into())
    }

    fn top(&self) -> Outcome<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack[floor..].last().copied().ok_or_else(|| "a pickle needs a value on the stack".into())
    }

    fn pop_mark(&mut self) -> Outcome<Vec<Id>> {
        let height = self.marks.pop().ok_or("a pickle closes a mark that was not set")?;
        Ok(self.stack.split_off(height))
    }

    pub(super) fn node(&self, id: Id) -> &Node<'a> {
        &self.nodes[id as usize]
    }

    fn put(&mut self, index: u32) -> Outcome<()> {
        let top = self.top()?;
        self.memo.insert(index, top);
        Ok(())
    }

    fn get(&mut self, index: u32) -> Outcome<()> {
        let id =
            *self.memo.get(&index).ok_or_else(|| format!("a pickle recalls value {index}, never stored"))?;
        self.push_id(id);
        Ok(())
    }

    /// Performs one operation; the root when it is the last one.
    fn step(&mut self, op: u8) -> Outcome<Option<Id>> {
        match op {
            b'.' => return self.pop().map(Some),
            0x80 => {
                let version = self.array::<1>()?[0];
                if version > 5 {
                    return Err(format!("pickle protocol {version}, at most 5 was expected"));
                }
            }
            0x95 => drop(self.take(8)?),
            b'0' => self.discard()?,
            b'1' => drop(self.pop_mark()?),
            b'2' => {
                let top = self.top()?;
                self.push_id(top);
            }
            b'(' => self.marks.push(self.stack.len()),
            b'q' => {
                let index = self.array::<1>()?[0].into();
                self.put(index)?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.array()?);
                self.put(index)?;
            }
            0x94 => self.put(self.memo.len() as u32)?,
            b'h' => {
                let index = self.array::<1>()?[0].into();
                self.get(index)?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.array()?);
                self.get(index)?;
            }
            b'p' | b'g' => {
                let index = self.text_line()?.parse().map_err(|_| "a memo index is no number")?;
                if op == b'p' { self.put(index)? } else { self.get(index)? }
            }
            b'c' => {
                let (module, name) = (self.text_line()?, self.text_line()?);
                self.push(Node::Global(module, name));
            }
            0x93 => self.stack_global()?,
            b'Q' => self.persistent()?,
            b'R' | 0x81 => {
                let args = self.pop()?;
                let callee = self.pop()?;
                self.call(callee, args)?;
            }
            b'b' => self.set_state()?,
            b'i' => {
                let (module, name) = (self.text_line()?, self.text_line()?);
                return Err(refusal(module, name));
            }
            b'o' | 0x92 => return Err(self.refuse_object(op)),
            0x82..=0x84 => return Err("a pickle calls a registered extension, which is refused".into()),
            b'P' => return Err("a pickle refers to an object outside of itself".into()),
            _ => self.step_value(op)?,
        }
        Ok(None)
    }

    /// Operations that make or fill plain values.
    fn step_value(&mut self, op: u8) -> Outcome<()> {
        match op {
            b'N' => self.push_id(NONE),
            0x88 => self.push_id(TRUE),
            0x89 => self.push_id(FALSE),
            b'K' => {
                let v = self.array::<1>()?[0];
                self.push(Node::Int(v.into()));
            }
            b'M' => {
                let v = u16::from_le_bytes(self.array()?);
                self.push(Node::Int(v.into()));
            }
            b'J' => {
                let v = i32::from_le_bytes(self.array()?);
                self.push(Node::Int(v.into()));
            }
            b'G' => {
                let v = f64::from_be_bytes(self.array()?);
                self.push(Node::Float(v));
            }
            b'I' | b'L' | b'F' => self.number_line(op)?,
            0x8a => {
                let len = self.array::<1>()?[0].into();
                self.long(len)?;
            }
            0x8b => {
                let len = u32::from_le_bytes(self.array()?) as usize;
                self.long(len)?;
            }
            b'U' | 0x8c | b'C' => {
                let len = self.array::<1>()?[0].into();
                self.text(len)?;
            }
            b'T' | b'X' | b'B' => {
                let len = u32::from_le_bytes(self.array()?) as usize;
                self.text(len)?;
            }
            0x8d | 0x8e | 0x96 => {
                let len = u64::from_le_bytes(self.array()?);
                self.text(usize::try_from(len).map_err(|_| "a pickle ends too early")?)?;
            }
            b'S' | b'V' => {
                let line = self.line()?;
                let quoted = op == b'S' && line.len() >= 2;
                self.push(Node::Text(if quoted { &line[1..line.len() - 1] } else { line }));
            }
            _ => self.step_container(op)?,
        }
        Ok(())
    }

    fn step_container(&mut self, op: u8) -> Outcome<()> {
        match op {
            b')' => self.push(Node::Tuple(Vec::new())),
            0x85..=0x87 => {
                let mut items = Vec::new();
                for _ in 0..=op - 0x85 {
                    items.push(self.pop()?);
                }
                items.reverse();
                self.push(Node::Tuple(items));
            }
            b't' => {
                let items = self.pop_mark()?;
                self.push(Node::Tuple(items));
            }
            b']' | 0x8f => self.push(Node::List(Vec::new())),
            b'l' | 0x91 => {
                let items = self.pop_mark()?;
                self.push(Node::List(items));
            }
            b'}' => self.push(Node::Dict(Vec::new())),
            b'd' => {
                let items = self.pop_mark()?;
                self.push(Node::Dict(Vec::new()));
                self.set_items(&items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            b'e' | 0x90 => {
                let items = self.pop_mark()?;
                self.append(&items)?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set_items(&[key, value])?;
            }
            b'u' => {
                let items = self.pop_mark()?;
                self.set_items(&items)?;
            }
            _ => return Err("an unknown operation".into()),
        }
        Ok(())
    }

    /// `POP` closes an open mark when nothing lies above it.
    fn discard(&mut self) -> Outcome<()> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn number_line(&mut self, op: u8) -> Outcome<()> {
        let line = self.text_line()?;
        match (op, line) {
            (b'I', "00") => self.push_id(FALSE),
            (b'I', "01") => self.push_id(TRUE),
            (b'F', _) => {
                let v = line.parse().map_err(|_| "a number is none")?;
                self.push(Node::Float(v));
            }
            _ => {
                let v = line.trim_end_matches('L').parse().map_err(|_| "a number is none")?;
                self.push(Node::Int(v));
            }
        }
        Ok(())
    }

    /// A whole number of `len` bytes, little endian, two's complement.
    fn long(&mut self, len: usize) -> Outcome<()> {
        let bytes = self.take(len)?;
        if len > 8 {
            self.push(Node::Opaque);
            return Ok(());
        }
        let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
        let mut full = [if negative { 0xff } else { 0 }; 8];
        full[..len].copy_from_slice(bytes);
        self.push(Node::Int(i64::from_le_bytes(full)));
        Ok(())
    }

    fn text(&mut self, len: usize) -> Outcome<()> {
        let bytes = self.take(len)?;
        self.push(Node::Text(bytes));
        Ok(())
    }

    fn append(&mut self, items: &[Id]) -> Outcome<()> {
        let target = self.top()?;
        match &mut self.nodes[target as usize] {
            Node::List(list) => list.extend_from_slice(items),
            Node::Opaque => {}
            _ => return Err("a pickle appends to something that is no list".into()),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[Id]) -> Outcome<()> {
        let target = self.top()?;
        let (pairs, []) = items.as_chunks::<2>() else {
            return Err("a pickle fills a dictionary with half a pair".into());
        };
        match &mut self.nodes[target as usize] {
            Node::Dict(dict) => dict.extend(pairs.iter().map(|&[k, v]| (k, v))),
            Node::Opaque => {}
            _ => return Err("a pickle sets items of something that is no dictionary".into()),
        }
        Ok(())
    }

    fn stack_global(&mut self) -> Outcome<()> {
        let name = self.pop()?;
        let module = self.pop()?;
        let (&Node::Text(module), &Node::Text(name)) = (self.node(module), self.node(name)) else {
            return Err("a pickle names something by values that are no texts".into());
        };
        let utf8 = |bytes: &'a [u8]| match std::str::from_utf8(bytes) {
            Ok(text) if bytes.len() <= LINE_BYTES => Ok(text),
            _ => Err("a name is too long or no UTF-8"),
        };
        let (module, name) = (utf8(module)?, utf8(name)?);
        self.push(Node::Global(module, name));
        Ok(())
    }

    /// Class instances by `OBJ` and `NEWOBJ_EX`.
    fn refuse_object(&mut self, op: u8) -> String {
        let class = if op == b'o' {
            self.pop_mark().ok().and_then(|items| items.first().copied())
        } else {
            self.stack.len().checked_sub(3).map(|i| self.stack[i])
        };
        match class.map(|id| self.node(id)) {
            Some(&Node::Global(module, name)) => refusal(module, name),
            _ => "a pickle makes an object of something without a name, which is refused".into(),
        }
    }

    /// `BUILD`: attributes of dictionaries and tensors do not matter to us.
    fn set_state(&mut self) -> Outcome<()> {
        let state = self.pop()?;
        let target = self.top()?;
        match self.node(target) {
            Node::Dict(_) => {
                // a ParameterDict keeps its tensors in its state
                if let Some(parameters) = self.lookup(state, b"_parameters")
                    && let Node::Dict(pairs) = self.node(parameters)
                {
                    let items: Vec<Id> = pairs.iter().flat_map(|&(k, v)| [k, v]).collect();
                    self.charge(items.len())?;
                    self.set_items(&items)?;
                }
                Ok(())
            }
            Node::Tensor(_) | Node::Opaque => Ok(()),
            _ => Err("a pickle sets the state of something that has none".into()),
        }
    }

    fn lookup(&self, dict: Id, key: &[u8]) -> Option<Id> {
        let Node::Dict(pairs) = self.node(dict) else { return None };
        pairs.iter().find(|(k, _)| matches!(self.node(*k), Node::Text(t) if *t == key)).map(|p| p.1)
    }
}
