//! ggml made safe: tensors, graphs, checked operations, backends.
