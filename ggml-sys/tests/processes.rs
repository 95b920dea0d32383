//! What needs a second process, which is this program again with arguments: an RPC server, and an abort.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use ggml_sys::*;
use std::ffi::{CStr, CString};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::time::{Duration, Instant};

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", endpoint] => serve(endpoint),
        ["abort"] => abort(),
        ["--list", ..] => {}
        _ => {
            a_graph_runs_on_a_server();
            println!("test a_graph_runs_on_a_server ... ok");
            an_unreachable_server_is_an_error();
            println!("test an_unreachable_server_is_an_error ... ok");
            an_abort_outside_a_guard_prints_nothing();
            println!("test an_abort_outside_a_guard_prints_nothing ... ok");
        }
    }
}

/// This program with other arguments.
fn again(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(args);
    command
}

/// A server that ends with its owner.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// An address of this machine that nobody listens on at the moment.
fn free_endpoint() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn serve(endpoint: &str) {
    let endpoint = CString::new(endpoint).unwrap();
    // SAFETY: one device, which ggml's registry owns for ever; no cache.
    unsafe {
        let mut devices = [ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)];
        ggml_backend_rpc_start_server(endpoint.as_ptr(), ptr::null(), 1, devices.len(), devices.as_mut_ptr());
    }
}

fn a_graph_runs_on_a_server() {
    let endpoint = free_endpoint();
    // The server prints its greeting on stdout.
    let server = Server(again(&["serve", &endpoint]).stdout(Stdio::null()).spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(&endpoint).is_err() {
        assert!(Instant::now() < deadline, "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let endpoint = CString::new(endpoint).unwrap();
    assert_eq!(double_on_server(&endpoint), [2., 4., 6., 8.]);
    drop(server);
}

/// `[1, 2, 3, 4]` added to itself by the server.
fn double_on_server(endpoint: &CStr) -> [f32; 4] {
    let params = ggml_init_params { mem_size: 1 << 16, mem_buffer: ptr::null_mut(), no_alloc: true };
    // SAFETY: everything is made here and freed in reverse order; the arrays have the tensors' sizes.
    unsafe {
        let reg = ggml_backend_rpc_add_server(endpoint.as_ptr());
        assert!(!reg.is_null());
        let backend = ggml_backend_dev_init(ggml_backend_reg_dev_get(reg, 0), ptr::null());
        assert!(!backend.is_null());
        let ctx = ggml_init(params);
        let input = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
        // Longer than ggml's default limit of 63: names are part of the protocol.
        let name = CString::new("n".repeat(100)).unwrap();
        ggml_set_name(input, name.as_ptr());
        assert_eq!(CStr::from_ptr(ggml_get_name(input)), &*name);
        let sum = ggml_add(ctx, input, input);
        let graph = ggml_new_graph_custom(ctx, 16, false);
        ggml_build_forward_expand(graph, sum);
        let buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
        assert!(!buffer.is_null());

        let values = [1f32, 2., 3., 4.];
        ggml_backend_tensor_set(input, values.as_ptr().cast(), 0, size_of_val(&values));
        assert_eq!(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
        let mut result = [0f32; 4];
        ggml_backend_tensor_get(sum, result.as_mut_ptr().cast(), 0, size_of_val(&result));
        ggml_backend_buffer_free(buffer);
        ggml_backend_free(backend);
        ggml_free(ctx);
        result
    }
}

fn an_unreachable_server_is_an_error() {
    let endpoint = CString::new(free_endpoint()).unwrap();
    // SAFETY: the endpoint is a C string.
    let devices = guard(|| unsafe {
        let reg = ggml_backend_rpc_add_server(endpoint.as_ptr());
        if reg.is_null() { 0 } else { ggml_backend_reg_dev_count(reg) }
    });
    assert!(matches!(devices, Ok(0) | Err(_)), "{devices:?}");
}

/// Complains, then fails an assertion, with nothing in place but what is linked.
fn abort() {
    let params = gguf_init_params { no_alloc: true, ctx: ptr::null_mut() };
    // SAFETY: constants; null asks for no context.
    unsafe {
        gguf_init_from_file(c"/no/such/file".as_ptr(), params);
        ggml_abort(c"file.c".as_ptr(), 7, c"reason".as_ptr());
    }
}

fn an_abort_outside_a_guard_prints_nothing() {
    let output = again(&["abort"]).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}
