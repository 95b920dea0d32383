//! Pixels against recorded results: resizing, conversion, CLIP preprocessing, edges.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::Value;
use stable_diffusion::HostTensor;
use stable_diffusion::image::{
    CannyOptions, Image, Resize, canny, clip_preprocess, from_tensor, resize, to_tensor,
};
use std::io::Read;

fn recorded() -> Value {
    let packed = include_bytes!("data/images/images.json.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn sizes(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

fn close(got: &[f32], want: &[f32], tolerance: f32, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{what}: value {i} is {a}, expected {b}");
    }
}

fn waves(shape: &[usize], value: impl Fn(f64) -> f64) -> HostTensor {
    let count = shape.iter().product();
    HostTensor::new(shape, (0..count).map(|i| value(0.61 * i as f64 + 0.2) as f32).collect()).unwrap()
}

fn mode(name: &str) -> Resize {
    match name {
        "nearest" => Resize::Nearest,
        "nearest_exact" => Resize::NearestExact,
        "nearest_max" => Resize::NearestMax,
        "nearest_min" => Resize::NearestMin,
        "nearest_avg" => Resize::NearestAvg,
        "bilinear" => Resize::Bilinear,
        "bicubic" => Resize::Bicubic,
        "lanczos" => Resize::Lanczos,
        other => panic!("unknown mode {other}"),
    }
}

#[test]
fn every_resize_mode() {
    for case in recorded()["interpolate"].as_array().unwrap() {
        let name = case["mode"].as_str().unwrap();
        let antialias = case["antialias"].as_bool().unwrap();
        let input = waves(&sizes(&case["in"]), f64::sin);
        let to = sizes(&case["out"]);
        let got = resize(&input, [to[0], to[1]], mode(name), antialias).unwrap();
        let what = format!("{name} antialias {antialias} {:?} to {to:?}", input.shape);
        close(&got.data, &floats(&case["values"]), 2e-7, &what);
    }
}

#[test]
fn images_to_tensors() {
    for case in recorded()["image_to_tensor"].as_array().unwrap() {
        let get = |name: &str| case[name].as_u64().unwrap() as usize;
        let (width, height, channels) = (get("width"), get("height"), get("channels"));
        let data = (0..width * height * channels).map(|i| ((37 * i + 11) % 256) as u8).collect();
        let image = Image::new(width, height, channels, data).unwrap();
        let target = case["target"].as_array().unwrap();
        let size = (target[0].as_i64().unwrap() >= 0).then(|| {
            let size = sizes(&case["target"]);
            [size[0], size[1]]
        });
        let got = to_tensor(&image, size).unwrap();
        assert_eq!(got.shape, sizes(&case["result"]["shape"]));
        close(&got.data, &floats(&case["result"]["values"]), 1e-7, &format!("{target:?}"));
    }
}

#[test]
fn tensors_to_images() {
    let case = &recorded()["tensor_to_image"][0];
    let data = (0..45).map(|i| (-0.2 + 1.4 * f64::from(i) / 44.0) as f32).collect();
    let image = from_tensor(&HostTensor::new([5, 3, 3, 1], data).unwrap(), 0).unwrap();
    assert_eq!(image.data.iter().map(|b| usize::from(*b)).collect::<Vec<_>>(), sizes(&case["bytes_hwc"]));
}

#[test]
fn clip_input() {
    for case in recorded()["clip_preprocess"].as_array().unwrap() {
        let input = waves(&sizes(&case["in"]), |x| 0.5 + 0.5 * x.sin());
        let target = sizes(&case["target"]);
        let got = clip_preprocess(&input, [target[0], target[1]]).unwrap();
        close(&got.data, &floats(&case["values"]), 3e-7, &format!("{:?} to {target:?}", input.shape));
    }
}

fn picture(value: &Value) -> Image {
    let hex = value["rgb"].as_str().unwrap();
    let data = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
    let side = |name: &str| value[name].as_u64().unwrap() as usize;
    Image::new(side("width"), side("height"), 3, data).unwrap()
}

#[test]
fn edges_are_exact() {
    for case in recorded()["canny"].as_array().unwrap() {
        let number = |i: usize| case["args"][i].as_f64().unwrap() as f32;
        let options = CannyOptions {
            high_threshold: number(0),
            low_threshold: number(1),
            weak: number(2),
            strong: number(3),
            inverse: case["args"][4].as_bool().unwrap(),
        };
        let got = canny(&picture(&case["input"]), &options);
        let want = picture(&case["output"]);
        let differing = got.data.iter().zip(&want.data).filter(|(a, b)| a != b).count();
        assert_eq!(differing, 0, "{}: of {} bytes", case["name"], want.data.len());
    }
}

#[test]
fn any_size_and_channel_count() {
    let options =
        CannyOptions { high_threshold: 0.08, low_threshold: 0.08, weak: 0.8, strong: 1.0, inverse: false };
    for (width, height) in [(1, 1), (1, 9), (2, 2), (3, 7), (17, 5), (64, 2)] {
        for channels in 1..=4 {
            for value in [0, 200] {
                let image = Image::filled(width, height, channels, value).unwrap();
                let edges = canny(&image, &options);
                assert_eq!((edges.width, edges.height, edges.channels), (width, height, channels));
                let tensor = to_tensor(&image, Some([5, 3])).unwrap();
                assert_eq!(from_tensor(&tensor, 0).unwrap().data, vec![value; 15 * channels]);
            }
        }
    }
    assert!(Image::new(0, 1, 3, vec![]).is_err());
    assert!(Image::new(1, 1, 5, vec![0; 5]).is_err());
    assert!(Image::new(1 << 20, 1 << 20, 3, vec![]).is_err());
}
