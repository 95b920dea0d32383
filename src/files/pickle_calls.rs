//! What pickles may call: the rebuilding of tensors, containers, and a few harmless things that are dropped.
#![forbid(unsafe_code)]

use super::dtype::Dtype;
use super::limits;
use super::pickle::{Id, Machine, Node, Outcome, RawTensor, Storage};

/// Longest name of a storage; torch counts them.
const KEY_BYTES: usize = 256;

/// The message for a call that is not made.
pub(super) fn refusal(module: &str, name: &str) -> String {
    let shown: String = format!("{module}.{name}").chars().take(120).collect();
    format!("a pickle calls '{shown}', which is refused: only tensors and plain data are read")
}

/// What a name may be called for.
enum Callee {
    Dict,
    Tensor,
    /// As `Tensor`, with the type given beside an untyped storage.
    TypedTensor,
    /// Its first argument.
    First,
    /// Something that is not needed and was seen in public checkpoints.
    Ignored,
}

fn callee(module: &str, name: &str) -> Option<Callee> {
    Some(match (module, name) {
        ("collections", "OrderedDict" | "defaultdict" | "Counter")
        | ("torch.nn.modules.container", "ParameterDict") => Callee::Dict,
        ("torch._utils", "_rebuild_tensor_v2" | "_rebuild_tensor") => Callee::Tensor,
        ("torch._utils", "_rebuild_tensor_v3") => Callee::TypedTensor,
        ("torch", "Size") | ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => {
            Callee::First
        }
        ("torch", "device")
        | ("numpy", "dtype")
        | ("numpy.core.multiarray" | "numpy._core.multiarray", "scalar")
        | ("_codecs", "encode")
        | ("argparse", "Namespace")
        | ("builtins" | "__builtin__", "set" | "frozenset" | "bytearray" | "complex")
        | ("pathlib", "PosixPath" | "WindowsPath" | "PurePosixPath") => Callee::Ignored,
        _ => return None,
    })
}

impl<'a> Machine<'a> {
    pub(super) fn call(&mut self, target: Id, args: Id) -> Outcome<()> {
        let &Node::Global(module, name) = self.node(target) else {
            return Err("a pickle calls something without a name, which is refused".into());
        };
        let kind = callee(module, name).ok_or_else(|| refusal(module, name))?;
        let Node::Tuple(args) = self.node(args) else {
            return Err(format!("'{module}.{name}' is called without a tuple of arguments"));
        };
        let wrong = || format!("'{module}.{name}' is called with arguments that it does not take");
        match kind {
            Callee::Ignored => self.push(Node::Opaque),
            Callee::First => {
                let first = *args.first().ok_or_else(wrong)?;
                self.push_id(first);
            }
            Callee::Dict => {
                let pairs = self.pairs(args.first().copied());
                self.charge(pairs.len())?;
                self.push(Node::Dict(pairs));
            }
            Callee::Tensor | Callee::TypedTensor => {
                let typed = matches!(kind, Callee::TypedTensor);
                let tensor = self.tensor(args, typed).ok_or_else(wrong)?;
                self.tensors.push(tensor);
                self.push(Node::Tensor(self.tensors.len() as Id - 1));
            }
        }
        Ok(())
    }

    /// Pairs of a list of two-element lists, with which old pickles fill an ordered dictionary.
    fn pairs(&self, list: Option<Id>) -> Vec<(Id, Id)> {
        let Some(Node::List(items)) = list.map(|id| self.node(id)) else { return Vec::new() };
        let pair = |&id: &Id| match self.node(id) {
            Node::Tuple(p) | Node::List(p) if p.len() == 2 => Some((p[0], p[1])),
            _ => None,
        };
        items.iter().filter_map(pair).collect()
    }

    /// Storage, first element, extents, strides, [requires_grad, hooks, dtype].
    fn tensor(&self, args: &[Id], typed: bool) -> Option<RawTensor> {
        let &[storage, first, shape, strides, ..] = args else { return None };
        let &Node::Storage(storage) = self.node(storage) else { return None };
        let &Node::Int(first) = self.node(first) else { return None };
        let dtype = if typed {
            let &Node::Global("torch", name) = self.node(*args.get(6)?) else { return None };
            torch_dtype(name)
        } else {
            self.storages[storage as usize].dtype.clone()
        };
        let (shape, strides) = (self.ints(shape)?, self.ints(strides)?);
        (shape.len() == strides.len()).then_some(RawTensor { storage, dtype, first, shape, strides })
    }

    fn ints(&self, id: Id) -> Option<Vec<i64>> {
        let (Node::Tuple(items) | Node::List(items)) = self.node(id) else { return None };
        let int = |&id: &Id| match *self.node(id) {
            Node::Int(v) => Some(v),
            _ => None,
        };
        // more axes than this are refused later by the tensor's name
        items.iter().take(limits::RANK + 1).map(int).collect()
    }

    /// `('storage', class, key, device, elements[, (view key, first element, elements)])`.
    pub(super) fn persistent(&mut self) -> Outcome<()> {
        let id = self.pop()?;
        let storage = self.storage(id).ok_or("a pickle refers to an object outside of itself")?;
        self.storages.push(storage);
        self.push(Node::Storage(self.storages.len() as Id - 1));
        Ok(())
    }

    fn storage(&self, id: Id) -> Option<Storage> {
        let Node::Tuple(parts) = self.node(id) else { return None };
        let &[tag, class, key, _device, elements, ..] = parts.as_slice() else { return None };
        if !matches!(self.node(tag), Node::Text(b"storage")) {
            return None;
        }
        let &Node::Global(_, class) = self.node(class) else { return None };
        let key = match *self.node(key) {
            Node::Text(bytes) if bytes.len() <= KEY_BYTES => std::str::from_utf8(bytes).ok()?.to_owned(),
            Node::Int(v) => v.to_string(),
            _ => return None,
        };
        let &Node::Int(elements) = self.node(elements) else { return None };
        let first = match parts.get(5).map(|&v| self.node(v)) {
            Some(Node::Tuple(view)) => match *self.node(*view.get(1)?) {
                Node::Int(first) => u64::try_from(first).ok()?,
                _ => return None,
            },
            _ => 0,
        };
        Some(Storage { key, dtype: storage_dtype(class), elements: u64::try_from(elements).ok()?, first })
    }
}

/// Element type of a storage class; untyped ones count bytes.
fn storage_dtype(class: &str) -> Result<Dtype, String> {
    Ok(match class {
        "FloatStorage" => Dtype::F32,
        "DoubleStorage" => Dtype::F64,
        "HalfStorage" => Dtype::F16,
        "BFloat16Storage" => Dtype::BF16,
        "LongStorage" => Dtype::I64,
        "IntStorage" => Dtype::I32,
        "ShortStorage" => Dtype::I16,
        "CharStorage" => Dtype::I8,
        "ByteStorage" | "UntypedStorage" => Dtype::U8,
        "BoolStorage" => Dtype::BOOL,
        _ => return Err(class.to_owned()),
    })
}

/// Element type by torch's name for it.
fn torch_dtype(name: &str) -> Result<Dtype, String> {
    Ok(match name {
        "float32" | "float" => Dtype::F32,
        "float64" | "double" => Dtype::F64,
        "float16" | "half" => Dtype::F16,
        "bfloat16" => Dtype::BF16,
        "int64" | "long" => Dtype::I64,
        "int32" | "int" => Dtype::I32,
        "int16" | "short" => Dtype::I16,
        "int8" => Dtype::I8,
        "uint8" => Dtype::U8,
        "bool" => Dtype::BOOL,
        "float8_e4m3fn" => Dtype::F8_E4M3,
        "float8_e5m2" => Dtype::F8_E5M2,
        _ => return Err(name.to_owned()),
    })
}
