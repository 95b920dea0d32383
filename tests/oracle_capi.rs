//! The C interface against recorded results: initial values, texts of parameters, names and their parsing.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::Value;
use stable_diffusion::capi::{names, params};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io::Read;
use std::mem::MaybeUninit;

fn recorded() -> Value {
    let mut text = String::new();
    let packed = include_bytes!("data/capi/defaults.json.gz");
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn interface() -> Value {
    serde_json::from_str(include_str!("abi/abi.json")).unwrap()
}

fn as_enum<E>(number: c_int) -> MaybeUninit<E> {
    let mut value = MaybeUninit::<E>::uninit();
    // SAFETY: the C enums are ints.
    unsafe { value.as_mut_ptr().cast::<c_int>().write(number) };
    value
}

fn number<E>(value: MaybeUninit<E>) -> i64 {
    // SAFETY: the C enums are ints, and the functions return initialised ones.
    i64::from(unsafe { value.as_ptr().cast::<c_int>().read() })
}

fn text(pointer: *const c_char) -> String {
    assert!(!pointer.is_null());
    // SAFETY: the library's texts are NUL-terminated.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap().to_string()
}

type NameOf = Box<dyn Fn(c_int) -> String>;
type NumberOf = Box<dyn Fn(*const c_char) -> i64>;

fn name_functions() -> HashMap<&'static str, NameOf> {
    macro_rules! table {
        ($($name:ident),*) => {
            HashMap::from([$((
                stringify!($name),
                Box::new(|n| text(names::$name(as_enum(n)))) as NameOf,
            )),*])
        };
    }
    table!(
        sd_type_name,
        sd_rng_type_name,
        sd_sample_method_name,
        sd_scheduler_name,
        sd_prediction_name,
        sd_preview_name,
        sd_lora_apply_mode_name,
        sd_hires_upscaler_name
    )
}

fn parse_functions() -> HashMap<&'static str, NumberOf> {
    macro_rules! table {
        ($($name:ident),*) => {
            HashMap::from([$((
                stringify!($name),
                // SAFETY: called with NULL or a NUL-terminated string only.
                Box::new(|p| number(unsafe { names::$name(p) })) as NumberOf,
            )),*])
        };
    }
    table!(
        str_to_sd_type,
        str_to_rng_type,
        str_to_sample_method,
        str_to_scheduler,
        str_to_prediction,
        str_to_preview,
        str_to_lora_apply_mode,
        str_to_sd_hires_upscaler
    )
}

#[test]
fn names_in_and_out_of_range() {
    let functions = name_functions();
    let recorded = recorded();
    let recorded = recorded["names"].as_object().unwrap();
    assert_eq!(recorded.len(), functions.len());
    for (name, cases) in recorded {
        for range in ["in_range", "out_of_range"] {
            for (value, want) in cases[range].as_object().unwrap() {
                let value: c_int = value.parse().unwrap();
                assert_eq!(functions[name.as_str()](value), want.as_str().unwrap(), "{name}({value})");
            }
        }
        assert_eq!(functions[name.as_str()](-5), "NONE");
        assert_eq!(functions[name.as_str()](c_int::MIN), "NONE");
    }
}

#[test]
fn every_spelling() {
    let functions = parse_functions();
    let recorded = recorded();
    let recorded = recorded["str_to"].as_object().unwrap();
    assert_eq!(recorded.len(), functions.len());
    for (name, cases) in recorded {
        let parse = &functions[name.as_str()];
        for (spelling, want) in cases.as_object().unwrap() {
            if spelling == "<NULL>" {
                // The recorded library crashed; the count is the answer for "no such name".
                assert_eq!(parse(std::ptr::null()), parse(c"no such name".as_ptr()));
                continue;
            }
            let spelled = CString::new(spelling.as_str()).unwrap();
            assert_eq!(parse(spelled.as_ptr()), want.as_i64().unwrap(), "{name}({spelling:?})");
        }
    }
}

/// Compares the field of type `kind` at `bytes` with a recorded value.
fn compare(abi: &Value, kind: &str, bytes: &[u8], want: &Value, path: &str) {
    let int = |n: usize| {
        let mut wide = [0u8; 8];
        wide[..n].copy_from_slice(&bytes[..n]);
        u64::from_le_bytes(wide)
    };
    match kind {
        "bool" => assert_eq!(bytes[0] == 1, want.as_bool().unwrap(), "{path}"),
        "float" => {
            let got = f32::from_bits(int(4) as u32);
            let want = if want == "inf" { f32::INFINITY } else { want.as_f64().unwrap() as f32 };
            assert_eq!(got, want, "{path}");
        }
        "int" => assert_eq!(int(4) as u32 as i32, want.as_i64().unwrap() as i32, "{path}"),
        "uint32_t" => assert_eq!(int(4), want.as_u64().unwrap(), "{path}"),
        "int64_t" | "size_t" => assert_eq!(int(8) as i64, want.as_i64().unwrap(), "{path}"),
        _ if kind.starts_with("enum ") => {
            assert_eq!(int(4) as u32 as i32, want.as_i64().unwrap() as i32, "{path}");
        }
        _ if kind.ends_with('*') => assert!(int(8) == 0 && want.is_null(), "{path}"),
        _ => {
            for field in abi["structs"][kind]["fields"].as_array().unwrap() {
                let name = field["name"].as_str().unwrap();
                let offset = field["offset"].as_u64().unwrap() as usize;
                let kind = field["type"].as_str().unwrap();
                // The number of cores is the machine's.
                if name != "n_threads" {
                    compare(abi, kind, &bytes[offset..], &want[name], &format!("{path}.{name}"));
                }
            }
        }
    }
}

/// Bytes of a struct after its init function ran over rubbish.
fn initialised<T>(init: unsafe extern "C" fn(*mut T)) -> Vec<u8> {
    let mut memory = vec![0xa5u8; size_of::<T>()];
    // SAFETY: room for a T; the init functions write unaligned.
    unsafe { init(memory.as_mut_ptr().cast()) };
    memory
}

#[test]
fn initial_values() {
    let (recorded, abi) = (recorded(), interface());
    let all = [
        ("sd_ctx_params_init", "sd_ctx_params_t", initialised(params::sd_ctx_params_init)),
        ("sd_sample_params_init", "sd_sample_params_t", initialised(params::sd_sample_params_init)),
        ("sd_img_gen_params_init", "sd_img_gen_params_t", initialised(params::sd_img_gen_params_init)),
        ("sd_vid_gen_params_init", "sd_vid_gen_params_t", initialised(params::sd_vid_gen_params_init)),
        ("sd_cache_params_init", "sd_cache_params_t", initialised(params::sd_cache_params_init)),
        ("sd_hires_params_init", "sd_hires_params_t", initialised(params::sd_hires_params_init)),
    ];
    assert_eq!(recorded["init"].as_object().unwrap().len(), all.len());
    for (function, kind, bytes) in all {
        assert_eq!(recorded["init_fields_left_untouched"][function].as_array().unwrap().len(), 0);
        compare(&abi, kind, &bytes, &recorded["init"][function], function);
    }
}

/// Writes recorded fields over a struct; strings and arrays are kept alive in `keep`.
fn fill(abi: &Value, kind: &str, bytes: &mut [u8], fields: &Value, keep: &mut Vec<Box<[u8]>>) {
    let constant = |name: &str| {
        abi["enums"]
            .as_object()
            .unwrap()
            .values()
            .find_map(|e| e[name].as_i64())
            .unwrap_or_else(|| panic!("{name}"))
    };
    for field in abi["structs"][kind]["fields"].as_array().unwrap() {
        let Some(value) = fields.get(field["name"].as_str().unwrap()) else { continue };
        let get = |name: &str| field[name].as_u64().unwrap() as usize;
        let kind = field["type"].as_str().unwrap();
        let place = &mut bytes[get("offset")..get("offset") + get("size")];
        let store = |place: &mut [u8], number: i64| {
            let size = place.len();
            place.copy_from_slice(&number.to_le_bytes()[..size]);
        };
        let mut pointer = |place: &mut [u8], data: Vec<u8>| {
            keep.push(data.into_boxed_slice());
            store(place, keep.last().unwrap().as_ptr() as i64);
        };
        match (kind, value) {
            (_, Value::Object(_)) => fill(abi, kind, place, value, keep),
            (_, Value::Bool(on)) => place[0] = u8::from(*on),
            ("float", _) => place.copy_from_slice(&(value.as_f64().unwrap() as f32).to_le_bytes()),
            ("const char *", Value::String(text)) => pointer(place, [text.as_bytes(), b"\0"].concat()),
            (_, Value::String(name)) => store(place, constant(name)),
            ("float *", Value::Array(list)) => {
                let floats = list.iter().flat_map(|v| (v.as_f64().unwrap() as f32).to_le_bytes());
                pointer(place, floats.collect());
            }
            // The texts count arrays and do not look inside.
            (_, Value::Array(_)) => pointer(place, vec![0; 64]),
            _ => store(place, value.as_i64().unwrap()),
        }
    }
}

fn check_text<T>(
    function: &str,
    kind: &str,
    init: unsafe extern "C" fn(*mut T),
    to_str: unsafe extern "C" fn(*const T) -> *mut c_char,
) {
    let (recorded, abi) = (recorded(), interface());
    let cases = &recorded["to_str"][function];
    let mut keep = Vec::new();
    for (fields, want) in
        [(&Value::Null, &cases["defaults"]), (&cases["other"]["fields"], &cases["other"]["text"])]
    {
        let mut memory = vec![MaybeUninit::<T>::uninit()];
        // SAFETY: aligned memory for one T, initialised by the call; then plain bytes are laid over its fields.
        let got = unsafe {
            init(memory[0].as_mut_ptr());
            let bytes = std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), size_of::<T>());
            if !fields.is_null() {
                fill(&abi, kind, bytes, fields, &mut keep);
            }
            let pointer = to_str(memory[0].as_ptr());
            let got = text(pointer);
            libc::free(pointer.cast());
            got
        };
        let own_cores = got
            .lines()
            .map(
                |line| {
                    if fields.is_null() && line.starts_with("n_threads: ") { "n_threads: 2" } else { line }
                },
            )
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(own_cores, want.as_str().unwrap().trim_end_matches('\n'), "{function}");
        assert_eq!(got.ends_with('\n'), want.as_str().unwrap().ends_with('\n'));
    }
}

#[test]
fn texts_of_parameters() {
    check_text(
        "sd_ctx_params_to_str",
        "sd_ctx_params_t",
        params::sd_ctx_params_init,
        params::sd_ctx_params_to_str,
    );
    check_text(
        "sd_sample_params_to_str",
        "sd_sample_params_t",
        params::sd_sample_params_init,
        params::sd_sample_params_to_str,
    );
    check_text(
        "sd_img_gen_params_to_str",
        "sd_img_gen_params_t",
        params::sd_img_gen_params_init,
        params::sd_img_gen_params_to_str,
    );
}
