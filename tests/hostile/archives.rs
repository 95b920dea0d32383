//! Zip archives and legacy checkpoints that lie.

use super::build::{Member, pickle, zip};
use super::{open, refused};

fn message(members: &[Member]) -> String {
    refused("a.pt", zip(members))
}

#[test]
fn lying_archives() {
    let pkl = Member::stored("a/data.pkl", &pickle::plain());
    let data = Member::stored("a/data/0", &[7; 16]);
    open("a.pt", zip(&[pkl.clone(), data.clone()])).unwrap();
    open("a.pt", zip(&[data.clone(), pkl.clone(), Member::stored("a/byteorder", b"little")])).unwrap();
    let with = |change: fn(&mut Member)| {
        let mut data = data.clone();
        change(&mut data);
        message(&[pkl.clone(), data])
    };
    assert!(with(|m| m.method = 12).contains("method 12"));
    assert!(with(|m| m.flags = 1).contains("encrypted"));
    assert!(with(|m| m.sizes = (16, 17)).contains("two sizes"));
    assert!(with(|m| m.sizes = (u32::MAX - 1, u32::MAX - 1)).contains("reaches into the table"));
    assert!(with(|m| m.sizes = (8, 8)).contains("beyond its storage"));
    assert!(with(|m| m.header = Some(u32::MAX - 1)).contains("outside of the archive"));
    assert!(with(|m| m.header = Some(1)).contains("does not start with a header"));
    assert!(with(|m| m.name = "a/data/1".into()).contains("is missing"));
    assert!(with(|m| m.name = "a/data.pkl".into()).contains("occurs twice"));
    assert!(message(std::slice::from_ref(&data)).contains("without 'data.pkl'"));
    assert!(
        message(&[pkl.clone(), data.clone(), Member::stored("a/byteorder", b"big")]).contains("big-endian")
    );
    let long = Member::stored("a/byteorder", &[b'x'; 100]);
    assert!(message(&[pkl.clone(), data.clone(), long]).contains("at most 16"));
    // one run of bytes for two members
    let first = pickle::tensor(&pickle::storage("FloatStorage", "0", 4), 0, &[4], &[1]);
    let second = pickle::tensor(&pickle::storage("FloatStorage", "1", 4), 0, &[4], &[1]);
    let both = [b"\x80\x02}(".to_vec(), pickle::text("x"), first, pickle::text("y"), second, b"u.".to_vec()]
        .concat();
    let both = Member::stored("a/data.pkl", &both);
    let at = 30 + both.name.len() + both.data.len();
    let twin = Member { name: "a/data/1".into(), header: Some(at as u32), ..data.clone() };
    assert!(message(&[both, data.clone(), twin]).contains("overlap"));

    let good = zip(&[pkl, data]);
    for (at, value, expected) in [
        (12, 0xff, "claims 65282 members"),
        (8, 0xff, "bytes at"),
        (4, 0xff, "bytes at"),
        (20, 0, "without its table"),
    ] {
        let mut bytes = good.clone();
        let at = bytes.len() - at;
        bytes[at + 1] = value;
        let got = open("a.pt", bytes).err();
        assert!(got.as_ref().is_none_or(|m| m.contains(expected) || m.contains("damaged")), "{at}: {got:?}");
    }
}

#[test]
fn bombs() {
    let zeros = vec![0; 64 << 20];
    let large = Member::deflated("a/data.pkl", &zeros);
    assert!(large.data.len() < 1 << 20);
    assert!(message(std::slice::from_ref(&large)).contains("at most 33554432"));
    let mut lying = large.clone();
    lying.sizes.1 = 1000;
    assert!(message(&[lying]).contains("more than its 1000 bytes"));
    let pkl = Member::stored("a/data.pkl", &pickle::plain());
    let mut thin = Member::deflated("a/data/0", &[7; 16]);
    thin.sizes.1 = u32::MAX - 1;
    assert!(message(&[pkl.clone(), thin]).contains("claims to inflate"));
    // a storage that inflates to something else is found when it is read
    for change in [
        |m: &mut Member| m.crc ^= 1,
        |m: &mut Member| m.sizes.1 = 17,
        |m: &mut Member| m.data[0] ^= 0xff,
        |m: &mut Member| m.sizes.0 -= 1,
    ] {
        let mut data = Member::deflated("a/data/0", &[7; 16]);
        change(&mut data);
        let file = stable_diffusion::files::ModelFile::from_bytes("a.pt", zip(&[pkl.clone(), data])).unwrap();
        let message = file.read(&file.tensors()[0]).unwrap_err().to_string();
        assert!(message.contains("zip member 'a/data/0'"), "{message}");
    }
}

#[test]
fn lying_legacy_files() {
    let keys = |list: &[&str]| {
        let items: Vec<u8> = list.iter().flat_map(|k| pickle::text(k)).collect();
        [b"\x80\x02](".to_vec(), items, b"e.".to_vec()].concat()
    };
    let file = |keys: Vec<u8>, count: i64, data: usize| {
        [pickle::plain(), keys, count.to_le_bytes().to_vec(), vec![7; data]].concat()
    };
    open("l.pt", file(keys(&["0"]), 4, 16)).unwrap();
    for (bytes, expected) in [
        (file(keys(&["0"]), 4, 15), "cut off"),
        (file(keys(&["0"]), 3, 16), "has 3 elements"),
        (file(keys(&["0"]), -1, 16), "18446744073709551615 elements"),
        (file(keys(&["0", "0"]), 4, 16), "are wanted"),
        (file(keys(&["1"]), 4, 16), "'1' is not used"),
        (file(keys(&[]), 4, 16), "missing from the list"),
        (file(b"\x80\x02}.".to_vec(), 4, 16), "no list of storage keys"),
        (file(b"\x80\x02cposix\nsystem\n)R.".to_vec(), 4, 16), "'posix.system'"),
        ([keys(&["0"]), keys(&["0"])].concat(), "not used"),
    ] {
        let got = refused("l.pt", bytes);
        assert!(got.contains(expected), "{expected}: {got}");
    }
}
