//! What a file may ask for. Real files stay far below each limit; a file above one is refused with a message
//! before anything of that size is allocated.
#![forbid(unsafe_code)]

/// Bytes of a safetensors JSON header. The format's reference reader stops at 100 MB; the largest public
/// headers are below 5 MB, and header plus parsed names must stay below 200 MB.
pub const HEADER_BYTES: u64 = 64 << 20;

/// Tensors of one file. The largest public mixtures of experts have about 50,000.
pub const TENSORS: u64 = 1 << 18;

/// Bytes of a tensor's name. ggml stops at 127; adapter files reach 200.
pub const NAME_BYTES: usize = 2048;

/// Axes of a tensor. Convolutions over time have five, windowed attention tables up to seven.
pub const RANK: usize = 8;

/// Elements of a tensor, zero extents counted as one, so that no later product of extents can wrap.
pub const ELEMENTS: u64 = 1 << 46;

/// Key/value pairs of GGUF metadata. Language models have below 100; files that keep the original shape of
/// each tensor as a key have a few thousand.
pub const METADATA_PAIRS: u64 = 1 << 18;

/// Bytes that all metadata of one file may take: a vocabulary of 262,144 tokens with its merges takes 20 MB.
pub const METADATA_BYTES: u64 = 64 << 20;

/// Elements of all metadata arrays of one file: a string takes 24 bytes of memory for 8 bytes of file.
pub const METADATA_ELEMENTS: u64 = 4 << 20;

/// Largest `general.alignment` of a GGUF file; every writer uses 32.
pub const ALIGNMENT: u64 = 1 << 16;

/// Bytes of an index file of shards: 50,000 names of 100 bytes take 8 MB.
pub const INDEX_BYTES: u64 = 32 << 20;

/// Shards of one model: each holds a file descriptor, of which a process has 1,024 by default.
pub const SHARDS: usize = 256;

/// Members of a torch zip file: one for each storage.
pub const ZIP_MEMBERS: usize = 1 << 18;

/// Bytes of a pickle: 50,000 tensors take about 10 MB.
pub const PICKLE_BYTES: u64 = 32 << 20;

/// Operations of a pickle, about 35 for each tensor: bounds time (below a second) and memory (about 40 bytes each).
pub const PICKLE_STEPS: usize = 2 << 20;

/// Dictionaries within dictionaries of a checkpoint.
pub const NESTING: usize = 16;

/// Bytes that a tensor with repeated elements (stride 0) may take beyond its storage.
pub const EXPANDED_BYTES: u64 = 16 << 20;

/// Deflate turns one byte into at most 1,032: a member that claims more is a lie.
pub const INFLATE_RATIO: u64 = 1032;

/// Bytes of a deflated storage; one storage holds one tensor in practice.
pub const INFLATED_BYTES: u64 = 16 << 30;

/// Bytes of a deflated storage that is kept after inflating, for further tensors in it; larger ones are
/// inflated anew for each tensor.
pub const INFLATED_KEPT: u64 = 128 << 20;

/// Entries of an importance matrix: one for each matrix of a model.
pub const IMATRIX_ENTRIES: usize = 1 << 16;

/// Values of an importance matrix entry: columns times experts.
pub const IMATRIX_VALUES: usize = 1 << 26;
