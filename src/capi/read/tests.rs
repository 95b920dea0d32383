use super::*;
use crate::capi::params::*;
use std::ptr::null;

fn initial<T>(init: unsafe extern "C" fn(*mut T)) -> T {
    let mut value = MaybeUninit::uninit();
    // SAFETY: memory for a T, which the init functions set completely.
    unsafe {
        init(value.as_mut_ptr());
        value.assume_init()
    }
}

fn image_params() -> sd_img_gen_params_t {
    initial(sd_img_gen_params_init)
}

fn refused(change: impl FnOnce(&mut sd_img_gen_params_t)) -> String {
    let mut params = image_params();
    change(&mut params);
    // SAFETY: every pointer is NULL or valid for its count in these tests, or is refused before it is read.
    unsafe { image_request(&params) }.unwrap_err().to_string()
}

#[test]
fn initial_structs_are_the_default_requests() {
    // SAFETY: initialised structs hold no pointers.
    unsafe {
        assert_eq!(image_request(&image_params()).unwrap(), ImageRequest::default());
        assert_eq!(video_request(&initial(sd_vid_gen_params_init)).unwrap(), VideoRequest::default());
        assert_eq!(context(&initial(sd_ctx_params_init)).unwrap(), ContextOptions::default());
    }
}

#[test]
fn numbers_out_of_range_mean_the_default() {
    let mut params = image_params();
    params.sample_params.sample_method = numbered(77);
    params.sample_params.scheduler = numbered(-1);
    params.cache.mode = numbered(99);
    params.hires.upscaler = numbered(c_int::MIN);
    params.sample_params.eta = f32::NAN;
    // SAFETY: no pointers are set.
    let request = unsafe { image_request(&params) }.unwrap();
    assert_eq!(request, ImageRequest::default());
    let mut options: sd_ctx_params_t = initial(sd_ctx_params_init);
    options.wtype = numbered(5);
    options.rng_type = numbered(3);
    options.lora_apply_mode = numbered(-4);
    options.vae_format = numbered(3);
    options.n_threads = -3;
    // SAFETY: no pointers are set.
    assert_eq!(unsafe { context(&options) }.unwrap(), ContextOptions::default());
}

#[test]
fn any_byte_of_a_bool_is_read() {
    let mut params = image_params();
    // SAFETY: one byte written to one byte.
    unsafe { params.circular_x.as_mut_ptr().cast::<u8>().write(0x5a) };
    // SAFETY: no pointers are set.
    assert!(unsafe { image_request(&params) }.unwrap().circular_x);
}

#[test]
fn sizes_and_counts_are_checked() {
    for (field, text) in [
        (refused(|p| p.width = 0), "width"),
        (refused(|p| p.height = -64), "height"),
        (refused(|p| p.width = 1 << 20), "width"),
        (refused(|p| p.batch_count = 0), "batch_count"),
        (refused(|p| p.batch_count = -1), "batch_count"),
        (refused(|p| p.sample_params.sample_steps = 0), "sample_steps"),
        (refused(|p| p.sample_params.sample_steps = -1), "sample_steps"),
        (refused(|p| p.strength = -1.0), "strength"),
        (refused(|p| p.strength = f32::NAN), "strength"),
        (refused(|p| p.lora_count = 2), "loras"),
        (refused(|p| p.ref_images_count = 1), "ref_images"),
        (refused(|p| p.ref_images_count = -1), "ref_images"),
        (refused(|p| p.pm_params.id_images_count = c_int::MAX), "id_images"),
        (refused(|p| p.sample_params.custom_sigmas_count = 4), "custom_sigmas"),
        (refused(|p| p.sample_params.guidance.slg.layer_count = usize::MAX), "slg.layers"),
        (refused(|p| p.sample_params.guidance.txt_cfg = f32::NAN), "txt_cfg"),
    ] {
        assert!(field.contains(text), "{field:?} names {text}");
    }
}

#[test]
fn images_are_copied_and_checked() {
    let mut pixels = vec![7u8; 2 * 3 * 3];
    let mut params = image_params();
    params.init_image = sd_image_t { width: 2, height: 3, channel: 3, data: pixels.as_mut_ptr() };
    let mut list = [params.init_image, params.init_image];
    params.ref_images = list.as_mut_ptr();
    params.ref_images_count = 2;
    // SAFETY: the pixels and the list are as large as they say.
    let request = unsafe { image_request(&params) }.unwrap();
    pixels.fill(0);
    assert_eq!(request.init_image.unwrap(), Image::filled(2, 3, 3, 7).unwrap());
    assert_eq!(request.ref_images.len(), 2);
    assert!(request.mask_image.is_none());

    let mut list = [list[0], sd_image_t { data: std::ptr::null_mut(), ..list[0] }];
    params.ref_images = list.as_mut_ptr();
    // SAFETY: as above; the second image has no pixels.
    assert!(unsafe { image_request(&params) }.unwrap_err().to_string().contains("ref_images[1].data"));
    for (width, height, channel) in [(0, 3, 3), (2, 0, 3), (2, 3, 0), (2, 3, 5), (u32::MAX, u32::MAX, 4)] {
        let data = pixels.as_mut_ptr();
        let text = refused(|p| p.control_image = sd_image_t { width, height, channel, data });
        assert!(text.starts_with("control_image: "), "{text}");
    }
}

#[test]
fn strings_are_taken_as_they_are() {
    let mut params = image_params();
    params.prompt = c"\xff\xfe broken (x:.".as_ptr();
    let mut hires = image_params().hires;
    hires.model_path = c"".as_ptr();
    params.hires = hires;
    let loras =
        [sd_lora_t { is_high_noise: MaybeUninit::new(true), multiplier: 0.5, path: c"a/\xe9.x".as_ptr() }];
    params.loras = loras.as_ptr();
    params.lora_count = 1;
    // SAFETY: the strings are NUL-terminated literals, the list is as long as it says.
    let request = unsafe { image_request(&params) }.unwrap();
    assert_eq!(request.prompt, b"\xff\xfe broken (x:.");
    assert_eq!(request.hires.model, None);
    assert!(request.loras[0].high_noise && request.loras[0].path.as_os_str().len() == 5);

    let loras = [sd_lora_t { path: null(), ..loras[0] }];
    let text = refused(|p| {
        p.loras = loras.as_ptr();
        p.lora_count = 1;
    });
    assert!(text.contains("loras[0].path"), "{text}");
}

#[test]
fn embeddings_need_name_and_path() {
    let mut options: sd_ctx_params_t = initial(sd_ctx_params_init);
    let list = [sd_embedding_t { name: c"word".as_ptr(), path: c"file".as_ptr() }];
    options.embeddings = list.as_ptr();
    options.embedding_count = 1;
    options.model_path = c"".as_ptr();
    // SAFETY: the strings are literals, the list is as long as it says.
    let read = unsafe { context(&options) }.unwrap();
    assert_eq!(read.embeddings, [Embedding { name: "word".into(), path: "file".into() }]);
    assert_eq!(read.model, None);
    options.embedding_count = u32::MAX;
    // SAFETY: a count that high is refused before the list is read.
    assert!(unsafe { context(&options) }.unwrap_err().to_string().contains("embeddings"));
}

#[test]
fn null_and_misaligned_structs_are_refused() {
    // SAFETY: NULL and misaligned pointers are refused before they are read.
    unsafe {
        assert!(at(null::<sd_ctx_params_t>(), "x").is_err());
        let bytes = [0u64; 2];
        let odd = bytes.as_ptr().cast::<u8>().add(1).cast::<sd_lora_t>();
        assert!(at(odd, "x").err().unwrap().to_string().contains("aligned"));
    }
}
