use stable_diffusion::files::{Dtype, apply_scale, convert_source, e4m3_to_f32, e5m2_to_f32};

fn convert(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; bytes.len() / dtype.type_size()];
    convert_source(dtype, bytes, &mut out).unwrap();
    out
}

#[test]
fn small_floats_have_their_published_extremes() {
    assert_eq!(e4m3_to_f32(0x7e), 448.0);
    assert_eq!(e4m3_to_f32(0x01), 2f32.powi(-9));
    assert_eq!(e4m3_to_f32(0x08), 2f32.powi(-6));
    assert_eq!(e4m3_to_f32(0xb8), -1.0);
    assert!(e4m3_to_f32(0x7f).is_nan() && e4m3_to_f32(0xff).is_nan());
    assert!(e4m3_to_f32(0x80).is_sign_negative());
    assert_eq!(e5m2_to_f32(0x7b), 57344.0);
    assert_eq!(e5m2_to_f32(0xfc), f32::NEG_INFINITY);
    assert_eq!(e5m2_to_f32(0x01), 2f32.powi(-16));
    assert!(e5m2_to_f32(0x7d).is_nan());
}

#[test]
fn every_plain_type_converts() {
    assert_eq!(convert(Dtype::F64, &[0.1f64, -3.0].map(f64::to_le_bytes).concat()), [0.1, -3.0]);
    assert_eq!(convert(Dtype::I64, &[i64::MIN, 7].map(i64::to_le_bytes).concat()), [-9.223372e18, 7.0]);
    assert_eq!(convert(Dtype::I32, &[-5i32, 9].map(i32::to_le_bytes).concat()), [-5.0, 9.0]);
    assert_eq!(convert(Dtype::I16, &[-5i16, 9].map(i16::to_le_bytes).concat()), [-5.0, 9.0]);
    assert_eq!(convert(Dtype::I8, &[255, 1]), [-1.0, 1.0]);
    assert_eq!(convert(Dtype::U8, &[255, 1]), [255.0, 1.0]);
    assert_eq!(convert(Dtype::BOOL, &[0, 1, 2]), [0.0, 1.0, 1.0]);
    assert_eq!(convert(Dtype::F16, &[0x00, 0x3c]), [1.0]);
    assert_eq!(convert(Dtype::BF16, &[0x80, 0xbf]), [-1.0]);
    assert!(convert_source(Dtype::Q8_0, &[], &mut []).is_err());
    assert!(convert_source(Dtype::F32, &[0; 5], &mut [0.0]).is_err());
}

#[test]
fn scales_apply_to_the_whole_or_to_channels() {
    let mut v = [1.0, 2.0, 3.0, 4.0];
    apply_scale(&mut v, &[2.0]);
    assert_eq!(v, [2.0, 4.0, 6.0, 8.0]);
    apply_scale(&mut v, &[0.5, 10.0]);
    assert_eq!(v, [1.0, 2.0, 60.0, 80.0]);
    apply_scale(&mut [], &[1.0, 2.0]);
}

#[test]
fn small_floats_equal_the_recorded_ones() {
    // oracle/units/convert.json, sources: all 256 bytes as f32
    for (dtype, recorded) in [
        (Dtype::F8_E4M3, &include_bytes!("../data/files/f8_e4m3.f32")[..]),
        (Dtype::F8_E5M2, include_bytes!("../data/files/f8_e5m2.f32")),
    ] {
        let bytes: Vec<u8> = (0..=255).collect();
        for (i, (ours, theirs)) in
            convert(dtype, &bytes).iter().zip(convert(Dtype::F32, recorded)).enumerate()
        {
            assert!(
                ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                "{dtype} {i:#x} {ours}"
            );
        }
    }
}
