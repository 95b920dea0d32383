//! Pickles that call, recurse, lie and repeat.

use super::build::{pickle::*, torch_zip};
use super::{open, peak_mib, refused};

fn message(pickle: &[u8]) -> String {
    refused("p.pt", torch_zip(pickle))
}

#[test]
fn nothing_is_called() {
    let cat = |parts: &[&[u8]]| parts.concat();
    let id = text("id");
    for (pickle, expected) in [
        (cat(&[b"\x80\x02cposix\nsystem\n", &id, b"\x85R."]), "calls 'posix.system', which is refused"),
        (cat(&[b"\x80\x02cnt\nsystem\n(", &id, b"tR."]), "'nt.system'"),
        (cat(&[b"\x80\x02c__builtin__\neval\n(", &id, b"tR."]), "'__builtin__.eval'"),
        (cat(&[b"\x80\x04", &text("builtins"), &text("exec"), b"\x93(", &id, b"tR."]), "'builtins.exec'"),
        (cat(&[b"\x80\x02csubprocess\nPopen\n(", &id, b"t\x81."]), "'subprocess.Popen'"),
        (cat(&[b"\x80\x04csubprocess\nPopen\n)}\x92."]), "'subprocess.Popen'"),
        (cat(&[b"(", &id, b"iposix\nsystem\n."]), "no safetensors"),
        (cat(&[b"\x80\x02(", &id, b"iposix\nsystem\n."]), "'posix.system'"),
        (cat(&[b"\x80\x02(cposix\nsystem\n", &id, b"o."]), "'posix.system'"),
        (cat(&[b"\x80\x02ctorch\nload\n(", &id, b"tR."]), "'torch.load'"),
        (cat(&[b"\x80\x02ctorch._utils\n_rebuild_sparse_tensor\n)R."]), "_rebuild_sparse_tensor"),
        (cat(&[b"\x80\x02", &id, b")R."]), "without a name"),
        (b"\x80\x02\x82\x01.".to_vec(), "registered extension"),
        (b"\x80\x02Pid\n.".to_vec(), "outside of itself"),
        (cat(&[b"\x80\x02", &id, b"Q."]), "outside of itself"),
        // a call within what would be dropped is refused all the same
        (cat(&[b"\x80\x02}(", &text("optimizer"), b"cposix\nsystem\n", &id, b"\x85Ru."]), "'posix.system'"),
    ] {
        let got = refused("p.pt", if expected == "no safetensors" { pickle } else { torch_zip(&pickle) });
        assert!(got.contains(expected), "{expected}: {got}");
    }
    // a name that is not called does nothing
    let named = [b"\x80\x02}(".to_vec(), text("f"), b"cposix\nsystem\n".to_vec(), text("w")].concat();
    let named = [named, tensor(&storage("FloatStorage", "0", 4), 0, &[4], &[1]), b"u.".to_vec()].concat();
    open("p.pt", torch_zip(&named)).unwrap();
}

#[test]
fn broken_operations() {
    for (pickle, expected) in [
        (&b"\x80\x02."[..], "empty stack"),
        (b"\x80\x02N", "ends too early"),
        (b"\x80\x63N.", "protocol 99"),
        (b"\x80\x02\xff.", "unknown operation"),
        (b"\x80\x02(N.1", "no dictionary of tensors"),
        (b"\x80\x02N(.", "empty stack"),
        (b"\x80\x02N(0.", "no dictionary of tensors"),
        (b"\x80\x021.", "mark that was not set"),
        (b"\x80\x02t.", "mark that was not set"),
        (b"\x80\x02h\x05.", "recalls value 5"),
        (b"\x80\x02}(Nu.", "half a pair"),
        (b"\x80\x02N(NNu.", "no dictionary"),
        (b"\x80\x02NNa.", "no list"),
        (b"\x80\x02K\x01}b.", "state"),
        (b"\x80\x02\x85.", "empty stack"),
        (b"\x80\x02X\xff\xff\xff\xffab.", "ends too early"),
        (b"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.", "ends too early"),
        (b"\x80\x02\x8b\xff\xff\xff\xffab.", "ends too early"),
        (b"\x80\x02Iabc\n.", "a number is none"),
        (b"\x80\x02NN\x93.", "no texts"),
        (b"\x80\x02ca\n\xff\n.", "no UTF-8"),
        (b"\x80\x02cabc", "ends within a line"),
        (b"\x80\x02].", "no dictionary of tensors"),
        (b"\x80\x02}.", "no dictionary of tensors"),
    ] {
        let got = message(pickle);
        assert!(got.contains(expected), "{expected}: {got}");
    }
}

#[test]
fn tensors_that_do_not_fit() {
    let four = storage("FloatStorage", "0", 4);
    let t = |first, shape: &[i64], strides: &[i64]| dict("w", &tensor(&four, first, shape, strides));
    for (pickle, expected) in [
        (t(0, &[5], &[1]), "beyond its storage"),
        (t(1, &[4], &[1]), "beyond its storage"),
        (t(0, &[2], &[4]), "beyond its storage"),
        (t(-1, &[2], &[1]), "negative"),
        (t(0, &[-2], &[1]), "negative"),
        (t(0, &[2], &[-1]), "negative"),
        (t(i64::MAX, &[1], &[1]), "beyond its storage"),
        (t(0, &[2, 2], &[i64::MAX, i64::MAX]), "beyond its storage"),
        (t(0, &[1 << 40, 1 << 40], &[0, 0]), "elements in all"),
        (t(0, &[1 << 40], &[0]), "beyond its storage"),
        (t(0, &[1 << 31, 1 << 31, 4], &[0, 0, 0]), "elements in all"),
        (t(0, &[1; 9], &[1; 9]), "9 axes"),
        (t(0, &[1, 2], &[1]), "does not take"),
        (dict("w", &tensor(&storage("FloatStorage", "0", 5), 0, &[4], &[1])), "beyond its storage"),
        (dict("w", &tensor(&storage("FloatStorage", "0", i64::MAX), 0, &[4], &[1])), "beyond its storage"),
        (dict("w", &tensor(&storage("FloatStorage", "0", -4), 0, &[4], &[1])), "outside of itself"),
        (dict("w", &tensor(&storage("FloatStorage", "1", 4), 0, &[4], &[1])), "'a/data/1' is missing"),
        (dict("w", &tensor(&storage("FloatStorage", "../../0", 4), 0, &[4], &[1])), "is missing"),
        (
            dict("w", &tensor(&storage("ComplexFloatStorage", "0", 1), 0, &[1], &[1])),
            "'w' has the unsupported type",
        ),
        (dict("w", &tensor(&text("0"), 0, &[1], &[1])), "does not take"),
        (dict("", &tensor(&four, 0, &[1], &[1])), "name is 0 bytes"),
        (dict(&"n".repeat(3000), &tensor(&four, 0, &[1], &[1])), "name is 3000 bytes"),
    ] {
        let got = message(&pickle);
        assert!(got.contains(expected), "{expected}: {got}");
    }
    open("p.pt", torch_zip(&plain())).unwrap();
}

#[test]
fn recursion_and_repetition() {
    let key = text("k");
    // a dictionary within itself
    let itself = [&b"\x80\x02}q\x00"[..], &key, b"h\x00s."].concat();
    assert!(message(&itself).contains("deeper than 16"));
    let list = b"\x80\x02]q\x00h\x00a.";
    assert!(message(list).contains("no dictionary of tensors"));
    // each level mentions the one below a hundred times
    let mut laughs = b"\x80\x02}q\x00".to_vec();
    for level in 1..14u8 {
        laughs.extend(b"}(");
        for i in 0..100 {
            laughs.extend([text(&format!("{i}")), vec![b'h', level - 1]].concat());
        }
        laughs.extend([b'u', b'q', level]);
    }
    laughs.push(b'.');
    assert!(message(&laughs).contains("too many of them"));
    // a million levels of tuples, lists and marks
    for op in [&b"\x85"[..], b"("] {
        let deep = [&b"\x80\x02N"[..], &op.repeat(1 << 20), b"."].concat();
        let got = message(&deep);
        assert!(got.contains("no dictionary") || got.contains("empty stack"), "{got}");
    }
    let mut lists = b"\x80\x02]q\x00".to_vec();
    lists.extend(b"]h\x00a2q\x00".repeat(1 << 18));
    lists.push(b'.');
    assert!(message(&lists).contains("no dictionary"));
    // parameters copied again and again
    let mut state = [b"\x80\x02}q\x00}".to_vec(), text("_parameters"), b"}(".to_vec()].concat();
    for i in 0..2000 {
        state.extend([text(&format!("{i}")), b"N".to_vec()].concat());
    }
    state.extend(b"usq\x010");
    state.extend(b"h\x00h\x01b0".repeat(20_000));
    state.push(b'.');
    assert!(message(&state).contains("copies too many values"));
    // a name of a megabyte, recalled for each of many storages
    let long = [
        &b"\x80\x02"[..],
        &text(&"k".repeat(1 << 20)),
        b"q\x00(",
        &text("storage"),
        b"ctorch\nFloatStorage\nh\x00",
    ]
    .concat();
    assert!(message(&[long, text("cpu"), int(4), b"tQ.".to_vec()].concat()).contains("outside of itself"));
    let endless = [b"\x80\x02".to_vec(), b"N0".repeat(4 << 20), b".".to_vec()].concat();
    assert!(message(&endless).contains("operations"));
    assert!(peak_mib() < 200, "{} MiB", peak_mib());
}
