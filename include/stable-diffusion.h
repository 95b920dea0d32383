/*
 * libstable-diffusion: images and videos with diffusion models.
 *
 * Generated from src/capi; change the Rust source, not this file.
 *
 * Memory: what a function returns is C heap memory that the caller frees as its comment says. What a caller passes is
 * copied and stays the caller's. Every function that frees takes NULL.
 * Threads: contexts are independent. One context does one call at a time; further calls wait. Callbacks come on the
 * thread that made the call.
 * Errors: a call that fails returns false or NULL and logs why; sd_ext_last_error() in stable-diffusion-ext.h tells the
 * reason to the thread that made the call.
 * Static linking on Windows: leave SD_BUILD_SHARED_LIB undefined; define it to link with the DLL.
 */

#ifndef STABLE_DIFFUSION_H
#define STABLE_DIFFUSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_WIN32) || defined(__CYGWIN__)
#ifndef SD_BUILD_SHARED_LIB
#define SD_API
#else
#ifdef SD_BUILD_DLL
#define SD_API __declspec(dllexport)
#else
#define SD_API __declspec(dllimport)
#endif
#endif
#else
#if __GNUC__ >= 4
#define SD_API __attribute__((visibility("default")))
#else
#define SD_API
#endif
#endif

struct ggml_tensor;

/**
 * Level of a log message.
 */
typedef enum sd_log_level_t {
    SD_LOG_DEBUG = 0,
    SD_LOG_INFO = 1,
    SD_LOG_WARN = 2,
    SD_LOG_ERROR = 3,
} sd_log_level_t;

/**
 * How previews are made.
 */
typedef enum preview_t {
    /**
     * no previews
     */
    PREVIEW_NONE = 0,
    /**
     * projection of the latent channels: free, coarse
     */
    PREVIEW_PROJ = 1,
    /**
     * decoded by the tiny autoencoder
     */
    PREVIEW_TAE = 2,
    /**
     * decoded by the VAE: slow
     */
    PREVIEW_VAE = 3,
    PREVIEW_COUNT = 4,
} preview_t;

/**
 * Type of stored weights; the numbers are those of ggml. SD_TYPE_COUNT or an unknown number means: as stored.
 */
typedef enum sd_type_t {
    SD_TYPE_F32 = 0,
    SD_TYPE_F16 = 1,
    SD_TYPE_Q4_0 = 2,
    SD_TYPE_Q4_1 = 3,
    SD_TYPE_Q5_0 = 6,
    SD_TYPE_Q5_1 = 7,
    SD_TYPE_Q8_0 = 8,
    SD_TYPE_Q8_1 = 9,
    SD_TYPE_Q2_K = 10,
    SD_TYPE_Q3_K = 11,
    SD_TYPE_Q4_K = 12,
    SD_TYPE_Q5_K = 13,
    SD_TYPE_Q6_K = 14,
    SD_TYPE_Q8_K = 15,
    SD_TYPE_IQ2_XXS = 16,
    SD_TYPE_IQ2_XS = 17,
    SD_TYPE_IQ3_XXS = 18,
    SD_TYPE_IQ1_S = 19,
    SD_TYPE_IQ4_NL = 20,
    SD_TYPE_IQ3_S = 21,
    SD_TYPE_IQ2_S = 22,
    SD_TYPE_IQ4_XS = 23,
    SD_TYPE_I8 = 24,
    SD_TYPE_I16 = 25,
    SD_TYPE_I32 = 26,
    SD_TYPE_I64 = 27,
    SD_TYPE_F64 = 28,
    SD_TYPE_IQ1_M = 29,
    SD_TYPE_BF16 = 30,
    SD_TYPE_TQ1_0 = 34,
    SD_TYPE_TQ2_0 = 35,
    SD_TYPE_MXFP4 = 39,
    SD_TYPE_NVFP4 = 40,
    SD_TYPE_Q1_0 = 41,
    SD_TYPE_COUNT = 42,
} sd_type_t;

/**
 * Random generator. RNG_TYPE_COUNT or any value out of range means the default.
 */
typedef enum rng_type_t {
    /**
     * mt19937 and the normal distribution of the C++ library
     */
    STD_DEFAULT_RNG = 0,
    /**
     * Philox as on CUDA devices (the default)
     */
    CUDA_RNG = 1,
    /**
     * mt19937 as of torch on a CPU
     */
    CPU_RNG = 2,
    RNG_TYPE_COUNT = 3,
} rng_type_t;

/**
 * Sampler. SAMPLE_METHOD_COUNT or any value out of range means the model's default.
 */
typedef enum sample_method_t {
    EULER_SAMPLE_METHOD = 0,
    EULER_A_SAMPLE_METHOD = 1,
    HEUN_SAMPLE_METHOD = 2,
    DPM2_SAMPLE_METHOD = 3,
    DPMPP2S_A_SAMPLE_METHOD = 4,
    DPMPP2M_SAMPLE_METHOD = 5,
    DPMPP2Mv2_SAMPLE_METHOD = 6,
    IPNDM_SAMPLE_METHOD = 7,
    IPNDM_V_SAMPLE_METHOD = 8,
    LCM_SAMPLE_METHOD = 9,
    DDIM_TRAILING_SAMPLE_METHOD = 10,
    TCD_SAMPLE_METHOD = 11,
    RES_MULTISTEP_SAMPLE_METHOD = 12,
    RES_2S_SAMPLE_METHOD = 13,
    ER_SDE_SAMPLE_METHOD = 14,
    EULER_CFG_PP_SAMPLE_METHOD = 15,
    EULER_A_CFG_PP_SAMPLE_METHOD = 16,
    EULER_GE_SAMPLE_METHOD = 17,
    DPMPP2M_SDE_SAMPLE_METHOD = 18,
    DPMPP2M_SDE_BT_SAMPLE_METHOD = 19,
    SAMPLE_METHOD_COUNT = 20,
} sample_method_t;

/**
 * Noise schedule. SCHEDULER_COUNT or any value out of range means the default for the model and sampler.
 */
typedef enum scheduler_t {
    DISCRETE_SCHEDULER = 0,
    KARRAS_SCHEDULER = 1,
    EXPONENTIAL_SCHEDULER = 2,
    AYS_SCHEDULER = 3,
    GITS_SCHEDULER = 4,
    SGM_UNIFORM_SCHEDULER = 5,
    SIMPLE_SCHEDULER = 6,
    SMOOTHSTEP_SCHEDULER = 7,
    KL_OPTIMAL_SCHEDULER = 8,
    LCM_SCHEDULER = 9,
    BONG_TANGENT_SCHEDULER = 10,
    LTX2_SCHEDULER = 11,
    LOGIT_NORMAL_SCHEDULER = 12,
    FLUX2_SCHEDULER = 13,
    FLUX_SCHEDULER = 14,
    BETA_SCHEDULER = 15,
    SCHEDULER_COUNT = 16,
} scheduler_t;

/**
 * What the network predicts. PREDICTION_COUNT or any value out of range means: found from the weights.
 */
typedef enum prediction_t {
    EPS_PRED = 0,
    V_PRED = 1,
    EDM_V_PRED = 2,
    FLOW_PRED = 3,
    FLUX_FLOW_PRED = 4,
    SEFI_FLOW_PRED = 5,
    MINIT2I_FLOW_PRED = 6,
    PREDICTION_COUNT = 7,
} prediction_t;

/**
 * When LoRAs are applied: merged into the weights, or added while computing.
 */
typedef enum lora_apply_mode_t {
    /**
     * at run time when weights are quantised, else merged
     */
    LORA_APPLY_AUTO = 0,
    /**
     * merged into the weights
     */
    LORA_APPLY_IMMEDIATELY = 1,
    /**
     * added while computing; the weights stay as they are
     */
    LORA_APPLY_AT_RUNTIME = 2,
    LORA_APPLY_MODE_COUNT = 3,
} lora_apply_mode_t;

/**
 * Upscaler between the two passes of hires.
 */
typedef enum sd_hires_upscaler_t {
    SD_HIRES_UPSCALER_NONE = 0,
    SD_HIRES_UPSCALER_LATENT = 1,
    SD_HIRES_UPSCALER_LATENT_NEAREST = 2,
    SD_HIRES_UPSCALER_LATENT_NEAREST_EXACT = 3,
    SD_HIRES_UPSCALER_LATENT_ANTIALIASED = 4,
    SD_HIRES_UPSCALER_LATENT_BICUBIC = 5,
    SD_HIRES_UPSCALER_LATENT_BICUBIC_ANTIALIASED = 6,
    SD_HIRES_UPSCALER_LANCZOS = 7,
    SD_HIRES_UPSCALER_NEAREST = 8,
    SD_HIRES_UPSCALER_MODEL = 9,
    SD_HIRES_UPSCALER_COUNT = 10,
} sd_hires_upscaler_t;

/**
 * Step cache: skips network calls whose result is predictable.
 */
typedef enum sd_cache_mode_t {
    SD_CACHE_DISABLED = 0,
    SD_CACHE_EASYCACHE = 1,
    SD_CACHE_UCACHE = 2,
    SD_CACHE_DBCACHE = 3,
    SD_CACHE_TAYLORSEER = 4,
    SD_CACHE_CACHE_DIT = 5,
    SD_CACHE_SPECTRUM = 6,
} sd_cache_mode_t;

/**
 * Latent format of a VAE file whose family cannot be told.
 */
typedef enum sd_vae_format_t {
    SD_VAE_FORMAT_AUTO = -1,
    SD_VAE_FORMAT_FLUX = 0,
    SD_VAE_FORMAT_SD3 = 1,
    SD_VAE_FORMAT_FLUX2 = 2,
    SD_VAE_FORMAT_COUNT = 3,
} sd_vae_format_t;

/**
 * What sd_cancel_generation stops.
 */
typedef enum sd_cancel_mode_t {
    /**
     * Stop the current call as soon as possible; it returns false and no picture.
     */
    SD_CANCEL_ALL = 0,
    /**
     * Finish the picture being sampled, skip the rest of the batch, return what is complete.
     */
    SD_CANCEL_NEW_LATENTS = 1,
    /**
     * Take a request back that has not been acted on yet.
     */
    SD_CANCEL_RESET = 2,
} sd_cancel_mode_t;

/**
 * A loaded model. Made by new_sd_ctx, freed by free_sd_ctx.
 */
typedef struct sd_ctx_t sd_ctx_t;

/**
 * A loaded upscaler. Made by new_upscaler_ctx, freed by free_upscaler_ctx.
 */
typedef struct upscaler_ctx_t upscaler_ctx_t;

/**
 * Receives log messages file:line - text\n, on the thread that called the library.
 */
typedef void (*sd_log_cb_t)(enum sd_log_level_t level, const char *text, void *data);

/**
 * Receives progress: steps done, steps in all, seconds per step.
 */
typedef void (*sd_progress_cb_t)(int step, int steps, float time, void *data);

/**
 * Pixels, 8 bit, row by row, channel bytes a pixel. data NULL means: no image.
 */
typedef struct sd_image_t {
    /**
     * pixels in a row
     */
    uint32_t width;
    /**
     * rows
     */
    uint32_t height;
    /**
     * bytes of a pixel: 1, 3 or 4
     */
    uint32_t channel;
    /**
     * width * height * channel bytes
     */
    uint8_t *data;
} sd_image_t;

/**
 * Receives preview frames, which belong to the library and are valid during the call only.
 */
typedef void (*sd_preview_cb_t)(int step,
                                int frame_count,
                                struct sd_image_t *frames,
                                bool is_noisy,
                                void *data);

/**
 * Asked before (ask true: is this tensor wanted?) and after a graph node is computed (false stops the graph).
 */
typedef bool (*sd_graph_eval_callback_t)(struct ggml_tensor *t, bool ask, void *user_data);

/**
 * Step caches. Initialise with sd_cache_params_init.
 */
typedef struct sd_cache_params_t {
    /**
     * which cache
     */
    enum sd_cache_mode_t mode;
    /**
     * change below which a step is reused; not finite: the mode's default
     */
    float reuse_threshold;
    /**
     * share of the steps before which nothing is skipped
     */
    float start_percent;
    /**
     * share of the steps after which nothing is skipped
     */
    float end_percent;
    /**
     * how fast accumulated error fades
     */
    float error_decay_rate;
    /**
     * the threshold is relative to the size of the output
     */
    bool use_relative_threshold;
    /**
     * a computed step clears the accumulated error
     */
    bool reset_error_on_compute;
    /**
     * blocks at the front that are always computed
     */
    int Fn_compute_blocks;
    /**
     * blocks at the back that are always computed
     */
    int Bn_compute_blocks;
    /**
     * change of the residual below which blocks are reused
     */
    float residual_diff_threshold;
    /**
     * steps computed in full at first
     */
    int max_warmup_steps;
    /**
     * most steps to skip; -1: no limit
     */
    int max_cached_steps;
    /**
     * most steps to skip in a row; -1: no limit
     */
    int max_continuous_cached_steps;
    /**
     * order of the prediction
     */
    int taylorseer_n_derivatives;
    /**
     * steps predicted between two computed ones
     */
    int taylorseer_skip_interval;
    /**
     * which steps to compute as 1,0,..., or NULL
     */
    const char *scm_mask;
    /**
     * the mask allows skipping instead of forcing it
     */
    bool scm_policy_dynamic;
    /**
     * weight of the prediction
     */
    float spectrum_w;
    /**
     * number of basis functions
     */
    int spectrum_m;
    /**
     * regularisation
     */
    float spectrum_lam;
    /**
     * steps between computed ones
     */
    int spectrum_window_size;
    /**
     * growth of that window
     */
    float spectrum_flex_window;
    /**
     * steps computed in full at first
     */
    int spectrum_warmup_steps;
    /**
     * share of the steps after which all are computed
     */
    float spectrum_stop_percent;
} sd_cache_params_t;

/**
 * A second pass at a higher resolution. Initialise with sd_hires_params_init.
 */
typedef struct sd_hires_params_t {
    /**
     * make a second pass
     */
    bool enabled;
    /**
     * how the first result is enlarged
     */
    enum sd_hires_upscaler_t upscaler;
    /**
     * upscaler file for SD_HIRES_UPSCALER_MODEL
     */
    const char *model_path;
    /**
     * factor, when no target is given
     */
    float scale;
    /**
     * width of the result; 0: by scale
     */
    int target_width;
    /**
     * height of the result; 0: by scale
     */
    int target_height;
    /**
     * steps of the second pass; 0: as many as in the first
     */
    int steps;
    /**
     * share of the steps that the second pass runs, 0..1
     */
    float denoising_strength;
    /**
     * tile of the model upscaler in pixels
     */
    int upscale_tile_size;
    /**
     * own schedule of the second pass; NULL: none
     */
    float *custom_sigmas;
    /**
     * number of custom_sigmas
     */
    int custom_sigmas_count;
} sd_hires_params_t;

/**
 * A textual inversion: the word in the prompt and its file.
 */
typedef struct sd_embedding_t {
    /**
     * word that stands for the embedding in prompts
     */
    const char *name;
    /**
     * its file
     */
    const char *path;
} sd_embedding_t;

/**
 * What a context is made of. Initialise with sd_ctx_params_init. For every path NULL and "" mean: not given.
 */
typedef struct sd_ctx_params_t {
    /**
     * whole checkpoint: a file, or a folder in the diffusers layout
     */
    const char *model_path;
    /**
     * CLIP-L text encoder
     */
    const char *clip_l_path;
    /**
     * CLIP-G text encoder
     */
    const char *clip_g_path;
    /**
     * CLIP vision encoder
     */
    const char *clip_vision_path;
    /**
     * T5 text encoder
     */
    const char *t5xxl_path;
    /**
     * language model used as text encoder
     */
    const char *llm_path;
    /**
     * vision tower of that language model
     */
    const char *llm_vision_path;
    /**
     * diffusion network alone
     */
    const char *diffusion_model_path;
    /**
     * network for the noisy steps of a two-model video family
     */
    const char *high_noise_diffusion_model_path;
    /**
     * network for the unconditional branch, where a family has one
     */
    const char *uncond_diffusion_model_path;
    /**
     * connectors between language model and diffusion network
     */
    const char *embeddings_connectors_path;
    /**
     * VAE; replaces the one in the checkpoint
     */
    const char *vae_path;
    /**
     * VAE and vocoder for sound
     */
    const char *audio_vae_path;
    /**
     * tiny autoencoder
     */
    const char *taesd_path;
    /**
     * ControlNet
     */
    const char *control_net_path;
    /**
     * textual inversions, embedding_count of them; may be NULL when the count is 0
     */
    const struct sd_embedding_t *embeddings;
    /**
     * number of embeddings
     */
    uint32_t embedding_count;
    /**
     * PhotoMaker weights
     */
    const char *photo_maker_path;
    /**
     * PuLID weights
     */
    const char *pulid_weights_path;
    /**
     * types by tensor name: pattern=type,...; the first match wins over wtype
     */
    const char *tensor_type_rules;
    /**
     * worker threads; 0 or less: the number of physical cores
     */
    int n_threads;
    /**
     * type that weights are converted to on load
     */
    enum sd_type_t wtype;
    /**
     * generator of the initial noise
     */
    enum rng_type_t rng_type;
    /**
     * generator of a sampler's noise; RNG_TYPE_COUNT: as rng_type
     */
    enum rng_type_t sampler_rng_type;
    /**
     * what the network predicts
     */
    enum prediction_t prediction;
    /**
     * when LoRAs are applied
     */
    enum lora_apply_mode_t lora_apply_mode;
    /**
     * map weight files instead of copying them
     */
    bool enable_mmap;
    /**
     * fused attention everywhere
     */
    bool flash_attn;
    /**
     * fused attention in the diffusion network
     */
    bool diffusion_flash_attn;
    /**
     * use the tiny autoencoder for previews only
     */
    bool tae_preview_only;
    /**
     * direct convolution in the diffusion network
     */
    bool diffusion_conv_direct;
    /**
     * direct convolution in the VAE
     */
    bool vae_conv_direct;
    /**
     * scale that keeps the original SDXL VAE within F16
     */
    bool force_sdxl_vae_conv_scale;
    /**
     * latent format of vae_path
     */
    enum sd_vae_format_t vae_format;
    /**
     * device memory for weights in GiB, or device=GiB,...; NULL or "0": no limit, "-1": what is free
     */
    const char *max_vram;
    /**
     * with max_vram: load the next layers while the present ones compute
     */
    bool stream_layers;
    /**
     * load all weights in new_sd_ctx instead of at first use
     */
    bool eager_load;
    /**
     * device, or module=device,...; see sd_list_devices
     */
    const char *backend;
    /**
     * where weights wait while unused, in the same syntax
     */
    const char *params_backend;
    /**
     * layer or row, or module=mode,..., for a module over several devices
     */
    const char *split_mode;
    /**
     * choose devices and limits by what is free
     */
    bool auto_fit;
    /**
     * host:port,... of remote devices
     */
    const char *rpc_servers;
    /**
     * settings of the family as key=value,...
     */
    const char *model_args;
} sd_ctx_params_t;

/**
 * Skip-layer guidance.
 */
typedef struct sd_slg_params_t {
    /**
     * indices of the blocks to skip
     */
    int *layers;
    /**
     * number of layers
     */
    size_t layer_count;
    /**
     * share of the steps after which it starts
     */
    float layer_start;
    /**
     * share of the steps after which it ends
     */
    float layer_end;
    /**
     * strength; 0: off
     */
    float scale;
} sd_slg_params_t;

/**
 * Guidance scales.
 */
typedef struct sd_guidance_params_t {
    /**
     * classifier-free guidance of the prompt; 1: off
     */
    float txt_cfg;
    /**
     * guidance of the image condition; not finite: as txt_cfg
     */
    float img_cfg;
    /**
     * guidance that distilled models take as an input
     */
    float distilled_guidance;
    /**
     * skip-layer guidance
     */
    struct sd_slg_params_t slg;
} sd_guidance_params_t;

/**
 * How a latent is sampled. Initialise with sd_sample_params_init.
 */
typedef struct sd_sample_params_t {
    /**
     * guidance scales
     */
    struct sd_guidance_params_t guidance;
    /**
     * noise schedule
     */
    enum scheduler_t scheduler;
    /**
     * sampler
     */
    enum sample_method_t sample_method;
    /**
     * steps; 1 or more
     */
    int sample_steps;
    /**
     * noise added back by ancestral samplers; not finite: the sampler's default
     */
    float eta;
    /**
     * shift of the time steps for models trained that way; 0: off
     */
    int shifted_timestep;
    /**
     * own schedule, largest first, ending in 0; NULL: none
     */
    float *custom_sigmas;
    /**
     * number of custom_sigmas
     */
    int custom_sigmas_count;
    /**
     * shift of flow models; not finite: the model's default
     */
    float flow_shift;
    /**
     * further settings as key=value,..., or NULL
     */
    const char *extra_sample_args;
} sd_sample_params_t;

/**
 * A LoRA file and its strength.
 */
typedef struct sd_lora_t {
    /**
     * for the high-noise network of a two-model family
     */
    bool is_high_noise;
    /**
     * strength
     */
    float multiplier;
    /**
     * its file
     */
    const char *path;
} sd_lora_t;

/**
 * PhotoMaker: identity from pictures.
 */
typedef struct sd_pm_params_t {
    /**
     * pictures of the person
     */
    struct sd_image_t *id_images;
    /**
     * number of id_images
     */
    int id_images_count;
    /**
     * embedding file for version 2, or NULL
     */
    const char *id_embed_path;
    /**
     * 0..100; higher follows the prompt more
     */
    float style_strength;
} sd_pm_params_t;

/**
 * PuLID: identity from an embedding file.
 */
typedef struct sd_pulid_params_t {
    /**
     * embedding file (GGUF), or NULL
     */
    const char *id_embedding_path;
    /**
     * strength
     */
    float id_weight;
} sd_pulid_params_t;

/**
 * Decoding and encoding in tiles, which bounds the memory of the VAE.
 */
typedef struct sd_tiling_params_t {
    /**
     * decode and encode in tiles
     */
    bool enabled;
    /**
     * split a video along time too
     */
    bool temporal_tiling;
    /**
     * tile width in latent pixels; 0: the default
     */
    int tile_size_x;
    /**
     * tile height in latent pixels; 0: the default
     */
    int tile_size_y;
    /**
     * overlap of neighbouring tiles as a share of a tile, 0..0.5
     */
    float target_overlap;
    /**
     * tile width as a share of the picture (at most 1) or as number of tiles (above 1); 0: tile_size_x counts
     */
    float rel_size_x;
    /**
     * tile height likewise
     */
    float rel_size_y;
    /**
     * further settings as key=value,..., or NULL
     */
    const char *extra_tiling_args;
} sd_tiling_params_t;

/**
 * A request for images. Initialise with sd_img_gen_params_init. The library copies everything; nothing is kept after the call.
 */
typedef struct sd_img_gen_params_t {
    /**
     * LoRAs, lora_count of them; may be NULL when the count is 0
     */
    const struct sd_lora_t *loras;
    /**
     * number of loras
     */
    uint32_t lora_count;
    /**
     * what to show; NULL: empty
     */
    const char *prompt;
    /**
     * what to avoid; NULL: empty
     */
    const char *negative_prompt;
    /**
     * which layer of CLIP counts from the end; 0 or less: the model's default
     */
    int clip_skip;
    /**
     * image to start from; for a video its first frame
     */
    struct sd_image_t init_image;
    /**
     * reference images of edit models
     */
    struct sd_image_t *ref_images;
    /**
     * number of ref_images
     */
    int ref_images_count;
    /**
     * scale references to the size the model likes
     */
    bool auto_resize_ref_image;
    /**
     * each reference gets an index of its own
     */
    bool increase_ref_index;
    /**
     * white: paint anew, black: keep
     */
    struct sd_image_t mask_image;
    /**
     * pixels; rounded up to what the model needs
     */
    int width;
    /**
     * pixels; rounded up to what the model needs
     */
    int height;
    /**
     * how to sample
     */
    struct sd_sample_params_t sample_params;
    /**
     * how far the init image is changed, 0..1
     */
    float strength;
    /**
     * seed; negative: a random one
     */
    int64_t seed;
    /**
     * images to make; 1 or more
     */
    int batch_count;
    /**
     * image for the ControlNet or control model
     */
    struct sd_image_t control_image;
    /**
     * strength of the ControlNet
     */
    float control_strength;
    /**
     * PhotoMaker
     */
    struct sd_pm_params_t pm_params;
    /**
     * PuLID
     */
    struct sd_pulid_params_t pulid_params;
    /**
     * VAE in tiles
     */
    struct sd_tiling_params_t vae_tiling_params;
    /**
     * step cache
     */
    struct sd_cache_params_t cache;
    /**
     * second pass
     */
    struct sd_hires_params_t hires;
    /**
     * layers of a layered model
     */
    int qwen_image_layers;
    /**
     * wrap around horizontally
     */
    bool circular_x;
    /**
     * wrap around vertically
     */
    bool circular_y;
} sd_img_gen_params_t;

/**
 * A request for a video. Initialise with sd_vid_gen_params_init. The library copies everything; nothing is kept after the call.
 */
typedef struct sd_vid_gen_params_t {
    /**
     * LoRAs, lora_count of them; may be NULL when the count is 0
     */
    const struct sd_lora_t *loras;
    /**
     * number of loras
     */
    uint32_t lora_count;
    /**
     * what to show; NULL: empty
     */
    const char *prompt;
    /**
     * what to avoid; NULL: empty
     */
    const char *negative_prompt;
    /**
     * which layer of CLIP counts from the end; 0 or less: the model's default
     */
    int clip_skip;
    /**
     * image to start from; for a video its first frame
     */
    struct sd_image_t init_image;
    /**
     * last frame
     */
    struct sd_image_t end_image;
    /**
     * frames that guide the video
     */
    struct sd_image_t *control_frames;
    /**
     * number of control_frames
     */
    int control_frames_size;
    /**
     * pixels; rounded up to what the model needs
     */
    int width;
    /**
     * pixels; rounded up to what the model needs
     */
    int height;
    /**
     * how to sample
     */
    struct sd_sample_params_t sample_params;
    /**
     * how to sample with the high-noise network; sample_steps -1: chosen by moe_boundary
     */
    struct sd_sample_params_t high_noise_sample_params;
    /**
     * time at which the high-noise network hands over
     */
    float moe_boundary;
    /**
     * how far the init image is changed, 0..1
     */
    float strength;
    /**
     * seed; negative: a random one
     */
    int64_t seed;
    /**
     * frames to make; rounded to what the model can do
     */
    int video_frames;
    /**
     * frames a second, which some models know about
     */
    int fps;
    /**
     * strength of VACE control
     */
    float vace_strength;
    /**
     * VAE in tiles
     */
    struct sd_tiling_params_t vae_tiling_params;
    /**
     * step cache
     */
    struct sd_cache_params_t cache;
    /**
     * second pass
     */
    struct sd_hires_params_t hires;
    /**
     * wrap around horizontally
     */
    bool circular_x;
    /**
     * wrap around vertically
     */
    bool circular_y;
} sd_vid_gen_params_t;

/**
 * Sound of a video: interleaved samples in -1..1. Free with free_sd_audio.
 */
typedef struct sd_audio_t {
    /**
     * samples a second
     */
    uint32_t sample_rate;
    /**
     * channels, interleaved
     */
    uint32_t channels;
    /**
     * samples of one channel
     */
    uint64_t sample_count;
    /**
     * channels * sample_count values
     */
    float *data;
} sd_audio_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Sets who receives log messages, for the whole process; NULL: nobody. Without one nothing is printed.
 *
 * Messages read file:line - text\n, end in a newline and are valid during the call only. They come on the thread
 * that called the library. Calls in progress keep the callback they began with.
 *
 * Pointers:
 * data is passed on as it is. It and sd_log_cb stay valid until replaced and until calls that began before have
 * returned. The callback must not throw or jump out.
 */
SD_API
void sd_set_log_callback(sd_log_cb_t sd_log_cb,
                         void *data);

/**
 * Sets who receives progress, for the whole process; NULL: nobody.
 *
 * Counts restart with each phase: tensors loaded, sampling steps (0 to steps), tiles decoded. They come on the
 * thread that called the library. Calls in progress keep the callback they began with.
 *
 * Pointers:
 * As for sd_set_log_callback.
 */
SD_API
void sd_set_progress_callback(sd_progress_cb_t cb,
                              void *data);

/**
 * Sets who receives previews while sampling, for the whole process; NULL or PREVIEW_NONE: nobody.
 *
 * interval: a preview every so many steps (1 when less). denoised: show the estimate of the finished picture.
 * noisy: show the latent as it is, too. Frames are valid during the call only.
 *
 * Pointers:
 * As for sd_set_log_callback.
 */
SD_API
void sd_set_preview_callback(sd_preview_cb_t cb,
                             enum preview_t mode,
                             int interval,
                             bool denoised,
                             bool noisy,
                             void *data);

/**
 * Sets who is asked about each node of a computed graph, for the whole process; NULL: nobody.
 *
 * Before a node: return true to see its value. After it: return false to stop the graph, which makes the call fail.
 *
 * Pointers:
 * As for sd_set_log_callback. The tensor is valid during the call only.
 */
SD_API
void sd_set_backend_eval_callback(sd_graph_eval_callback_t cb,
                                  void *data);

/**
 * Number of physical cores that the process may use, at least 1.
 */
SD_API int32_t sd_get_num_physical_cores(void);

/**
 * One line on the features of the processor: System Info: \n   AVX = 1 | .... Never NULL; the text lives as long
 * as the library.
 */
SD_API
const char *sd_get_system_info(void);

/**
 * Revision of stable-diffusion.cpp whose interface this is. Never NULL; the text lives as long as the library.
 */
SD_API
const char *sd_commit(void);

/**
 * That revision's name and the version of this library. Never NULL; the text lives as long as the library.
 */
SD_API const char *sd_version(void);

/**
 * Lists the devices to compute on, one name<TAB>description a line; the names are those that backend and
 * params_backend take.
 *
 * Writes as much as fits, NUL-terminated, and returns the length of the whole text without its NUL. With buffer
 * NULL or buffer_size 0 it only returns the length.
 *
 * Pointers:
 * buffer is NULL or has room for buffer_size bytes.
 */
SD_API
size_t sd_list_devices(char *buffer,
                       size_t buffer_size);

/**
 * Name of weight type; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
 */
SD_API const char *sd_type_name(enum sd_type_t type);

/**
 * Weight type of that name, exactly as spelled; the enum's count for NULL and unknown names.
 *
 * Pointers:
 * str is NULL or a NUL-terminated string.
 */
SD_API enum sd_type_t str_to_sd_type(const char *str);

/**
 * Name of random generator; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
 */
SD_API
const char *sd_rng_type_name(enum rng_type_t rng_type);

/**
 * Random generator of that name, exactly as spelled; the enum's count for NULL and unknown names.
 *
 * Pointers:
 * str is NULL or a NUL-terminated string.
 */
SD_API enum rng_type_t str_to_rng_type(const char *str);

/**
 * Name of sampler; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
 */
SD_API const char *sd_sample_method_name(enum sample_method_t sample_method);

/**
 * Sampler of that name, exactly as spelled; the enum's count for NULL and unknown names.
 *
 * Pointers:
 * str is NULL or a NUL-terminated string.
 */
SD_API enum sample_method_t str_to_sample_method(const char *str);

/**
 * Name of noise schedule; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
 */
SD_API
const char *sd_scheduler_name(enum scheduler_t scheduler);

/**
 * Noise schedule of that name, exactly as spelled; the enum's count for NULL and unknown names.
 *
 * Pointers:
 * str is NULL or a NUL-terminated string.
 */
SD_API enum scheduler_t str_to_scheduler(const char *str);

/**
 * Name of prediction kind; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
 */
SD_API
const char *sd_prediction_name(enum prediction_t prediction);

/**
 * Prediction kind of that name, exactly as spelled; the enum's count for NULL and unknown names.
 *
 * Pointers:
 * str is NULL or a NUL-terminated string.
 */
SD_API enum prediction_t str_to_prediction(const char *str);

/**
 * Name of preview mode; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
 */
SD_API const char *sd_preview_name(enum preview_t preview);

/**
 * Preview mode of that name, exactly as spelled; the enum's count for NULL and unknown names.
 *
 * Pointers:
 * str is NULL or a NUL-terminated string.
 */
SD_API enum preview_t str_to_preview(const char *str);

/**
 * Name of LoRA mode; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
 */
SD_API const char *sd_lora_apply_mode_name(enum lora_apply_mode_t mode);

/**
 * LoRA mode of that name, exactly as spelled; the enum's count for NULL and unknown names.
 *
 * Pointers:
 * str is NULL or a NUL-terminated string.
 */
SD_API enum lora_apply_mode_t str_to_lora_apply_mode(const char *str);

/**
 * Name of hires upscaler; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
 */
SD_API
const char *sd_hires_upscaler_name(enum sd_hires_upscaler_t upscaler);

/**
 * Hires upscaler of that name, exactly as spelled; the enum's count for NULL and unknown names.
 *
 * Pointers:
 * str is NULL or a NUL-terminated string.
 */
SD_API enum sd_hires_upscaler_t str_to_sd_hires_upscaler(const char *str);

/**
 * Sets every field to its default. NULL is ignored.
 *
 * Pointers:
 * cache_params is NULL or points to memory for the struct.
 */
SD_API void sd_cache_params_init(struct sd_cache_params_t *cache_params);

/**
 * Sets every field to its default. NULL is ignored.
 *
 * Pointers:
 * hires_params is NULL or points to memory for the struct.
 */
SD_API void sd_hires_params_init(struct sd_hires_params_t *hires_params);

/**
 * Sets every field to its default; n_threads to the number of physical cores. NULL is ignored.
 *
 * Pointers:
 * sd_ctx_params is NULL or points to memory for the struct.
 */
SD_API void sd_ctx_params_init(struct sd_ctx_params_t *sd_ctx_params);

/**
 * Sets every field to its default. NULL is ignored.
 *
 * Pointers:
 * sample_params is NULL or points to memory for the struct.
 */
SD_API void sd_sample_params_init(struct sd_sample_params_t *sample_params);

/**
 * Sets every field to its default. NULL is ignored.
 *
 * Pointers:
 * sd_img_gen_params is NULL or points to memory for the struct.
 */
SD_API void sd_img_gen_params_init(struct sd_img_gen_params_t *sd_img_gen_params);

/**
 * Sets every field to its default. NULL is ignored.
 *
 * Pointers:
 * sd_vid_gen_params is NULL or points to memory for the struct.
 */
SD_API void sd_vid_gen_params_init(struct sd_vid_gen_params_t *sd_vid_gen_params);

/**
 * A readable text of context parameters, one field: value a line. Free it with free; NULL when
 * sd_ctx_params is NULL or memory ran out.
 *
 * Pointers:
 * sd_ctx_params is NULL or an initialised struct with valid strings.
 */
SD_API char *sd_ctx_params_to_str(const struct sd_ctx_params_t *sd_ctx_params);

/**
 * A readable text of sampling parameters on one line. Free it with free; NULL when sample_params is NULL or
 * memory ran out.
 *
 * Pointers:
 * sample_params is NULL or an initialised struct with valid strings.
 */
SD_API
char *sd_sample_params_to_str(const struct sd_sample_params_t *sample_params);

/**
 * A readable text of an image request, one field: value a line. Free it with free; NULL when
 * sd_img_gen_params is NULL or memory ran out.
 *
 * Pointers:
 * sd_img_gen_params is NULL or an initialised struct with valid strings.
 */
SD_API char *sd_img_gen_params_to_str(const struct sd_img_gen_params_t *sd_img_gen_params);

/**
 * Loads a model. Returns NULL when the files are not a usable model; the log and sd_ext_last_error say why.
 *
 * Every string and array of sd_ctx_params is copied. Contexts are independent of each other; one context does one
 * call at a time, and calls from further threads wait for their turn.
 *
 * Pointers:
 * sd_ctx_params is NULL or a struct initialised by sd_ctx_params_init, with valid strings and arrays.
 */
SD_API
struct sd_ctx_t *new_sd_ctx(const struct sd_ctx_params_t *sd_ctx_params);

/**
 * Frees a context. NULL is ignored.
 *
 * Waits until calls of other threads on the context have returned (cancel them first to be quick). From a callback
 * of the context's own call it returns at once, and the memory goes when that call returns.
 *
 * Pointers:
 * sd_ctx is NULL or from new_sd_ctx, not freed, and no call on it begins any more.
 */
SD_API
void free_sd_ctx(struct sd_ctx_t *sd_ctx);

/**
 * Whether the model makes images. False for NULL. Never waits.
 *
 * Pointers:
 * sd_ctx is NULL or from new_sd_ctx and not freed.
 */
SD_API bool sd_ctx_supports_image_generation(const struct sd_ctx_t *sd_ctx);

/**
 * Whether the model makes videos. False for NULL. Never waits.
 *
 * Pointers:
 * sd_ctx is NULL or from new_sd_ctx and not freed.
 */
SD_API bool sd_ctx_supports_video_generation(const struct sd_ctx_t *sd_ctx);

/**
 * The sampler used when a request names none; EULER_A_SAMPLE_METHOD for NULL. Never waits.
 *
 * Pointers:
 * sd_ctx is NULL or from new_sd_ctx and not freed.
 */
SD_API enum sample_method_t sd_get_default_sample_method(const struct sd_ctx_t *sd_ctx);

/**
 * The schedule used with sample_method when a request names none; for NULL that of a model of the first family.
 * Never waits.
 *
 * Pointers:
 * sd_ctx is NULL or from new_sd_ctx and not freed.
 */
SD_API
enum scheduler_t sd_get_default_scheduler(const struct sd_ctx_t *sd_ctx,
                                          enum sample_method_t sample_method);

/**
 * Asks the calls in progress on a context to stop. NULL is ignored; a mode out of range means SD_CANCEL_ALL.
 *
 * From any thread, callback or signal handler; returns at once. A request counts for every call that has entered the
 * library and not returned, however early; it does not touch calls that come later. The context stays usable.
 * SD_CANCEL_ALL: generate_image and generate_video return false and no picture. SD_CANCEL_NEW_LATENTS: the
 * picture being sampled is finished, the rest of the batch skipped. SD_CANCEL_RESET takes a request back.
 *
 * Pointers:
 * sd_ctx is NULL or from new_sd_ctx and not freed.
 */
SD_API
void sd_cancel_generation(struct sd_ctx_t *sd_ctx,
                          enum sd_cancel_mode_t mode);

/**
 * Makes images. On success *images_out is an array of *num_images_out images, to be freed with free_sd_images.
 * On failure returns false, with *images_out NULL and *num_images_out 0; the log and sd_ext_last_error say why.
 *
 * num_images_out may be NULL. Callbacks come on this thread. A second call on the same context, from another
 * thread, waits for the first; from a callback it fails.
 *
 * Pointers:
 * sd_ctx is NULL or from new_sd_ctx and not freed. sd_img_gen_params is NULL or a struct initialised by
 * sd_img_gen_params_init, with valid strings, arrays and pixels. The outputs are NULL or writable.
 */
SD_API
bool generate_image(struct sd_ctx_t *sd_ctx,
                    const struct sd_img_gen_params_t *sd_img_gen_params,
                    struct sd_image_t **images_out,
                    int *num_images_out);

/**
 * Makes a video. On success *frames_out is an array of *num_frames_out images, to be freed with
 * free_sd_images, and *audio_out is its sound, to be freed with free_sd_audio, or NULL when the model makes none.
 * On failure returns false with NULL, 0 and NULL; the log and sd_ext_last_error say why.
 *
 * num_frames_out and audio_out may be NULL. Threads and callbacks as for generate_image.
 *
 * Pointers:
 * sd_ctx is NULL or from new_sd_ctx and not freed. sd_vid_gen_params is NULL or a struct initialised by
 * sd_vid_gen_params_init, with valid strings, arrays and pixels. The outputs are NULL or writable.
 */
SD_API
bool generate_video(struct sd_ctx_t *sd_ctx,
                    const struct sd_vid_gen_params_t *sd_vid_gen_params,
                    struct sd_image_t **frames_out,
                    int *num_frames_out,
                    struct sd_audio_t **audio_out);

/**
 * Loads an upscaler. Returns NULL when the file is not a usable one; the log and sd_ext_last_error say why.
 *
 * direct: direct convolution. n_threads: 0 or less means the number of physical cores. tile_size: pixels, 0 or
 * less means the default. backend, params_backend: as in sd_ctx_params_t, NULL or "" for the default.
 *
 * Pointers:
 * The strings are NULL or NUL-terminated; they are copied.
 */
SD_API
struct upscaler_ctx_t *new_upscaler_ctx(const char *esrgan_path,
                                        bool direct,
                                        int n_threads,
                                        int tile_size,
                                        const char *backend,
                                        const char *params_backend);

/**
 * Frees an upscaler. NULL is ignored. A call of another thread that has begun keeps what it needs until it returns.
 *
 * Pointers:
 * upscaler_ctx is NULL or from new_upscaler_ctx, not freed, and no call on it begins any more.
 */
SD_API
void free_upscaler_ctx(struct upscaler_ctx_t *upscaler_ctx);

/**
 * Enlarges a picture. On success *images_out is an array of one image, *num_images_out is 1; free it with
 * free_sd_images. On failure returns false with NULL and 0; the log and sd_ext_last_error say why.
 *
 * The factor is that of the network; upscale_factor is a wish that networks of one factor ignore.
 * num_images_out may be NULL.
 *
 * Pointers:
 * upscaler_ctx is NULL or from new_upscaler_ctx and not freed. input_image has valid pixels or NULL. The outputs
 * are NULL or writable.
 */
SD_API
bool upscale(struct upscaler_ctx_t *upscaler_ctx,
             struct sd_image_t input_image,
             uint32_t upscale_factor,
             struct sd_image_t **images_out,
             int *num_images_out);

/**
 * Factor of an upscaler; 1 for NULL.
 *
 * Pointers:
 * upscaler_ctx is NULL or from new_upscaler_ctx and not freed.
 */
SD_API int get_upscale_factor(struct upscaler_ctx_t *upscaler_ctx);

/**
 * Reads a model, with a VAE when vae_path is given, converts its tensors and writes one file.
 *
 * output_path ends in .gguf or .safetensors. output_type: SD_TYPE_COUNT keeps types. tensor_type_rules:
 * pattern=type,..., NULL for none. convert_name: write the library's tensor names. Uses all physical cores.
 * Returns false on failure, leaving no file; the log and sd_ext_last_error say why. Strings are copied.
 *
 * Pointers:
 * The strings are NULL or NUL-terminated.
 */
SD_API
bool convert(const char *input_path,
             const char *vae_path,
             const char *output_path,
             enum sd_type_t output_type,
             const char *tensor_type_rules,
             bool convert_name);

/**
 * As convert, from a whole checkpoint, from parts, or both. NULL and "" mean that a part is not given; at least one
 * is needed. n_threads: 0 or less means the number of physical cores.
 *
 * Pointers:
 * The strings are NULL or NUL-terminated.
 */
SD_API
bool convert_with_components(const char *model_path,
                             const char *clip_l_path,
                             const char *clip_g_path,
                             const char *t5xxl_path,
                             const char *diffusion_model_path,
                             const char *vae_path,
                             const char *output_path,
                             enum sd_type_t output_type,
                             const char *tensor_type_rules,
                             bool convert_name,
                             int n_threads);

/**
 * Reads an importance matrix and adds it to the one of the process, which convert and loading with a quantised
 * type use. Returns false on failure.
 *
 * Pointers:
 * imatrix_path is NULL or NUL-terminated.
 */
SD_API
bool load_imatrix(const char *imatrix_path);

/**
 * Writes the importance matrix of the process. A failure is in the log and in sd_ext_last_error.
 *
 * Pointers:
 * imatrix_path is NULL or NUL-terminated.
 */
SD_API void save_imatrix(const char *imatrix_path);

/**
 * Starts measuring the importance matrix of the process: each generation adds to it.
 */
SD_API void enable_imatrix_collection(void);

/**
 * Stops measuring; what was measured stays.
 */
SD_API void disable_imatrix_collection(void);

/**
 * Replaces a picture by its edges, in place, for use as a control image. Returns false when there is no picture.
 *
 * high_threshold: share of the strongest edge that counts as an edge. low_threshold: share of that above which an
 * edge counts next to another. weak, strong: brightness of the two, 0..1. inverse: dark edges on white.
 * Pictures of 1 to 4 channels are taken; all channels get the same value.
 *
 * Pointers:
 * image.data is NULL or holds width * height * channel writable bytes.
 */
SD_API
bool preprocess_canny(struct sd_image_t image,
                      float high_threshold,
                      float low_threshold,
                      float weak,
                      float strong,
                      bool inverse);

/**
 * Frees images returned by the library: the pixels of each and the array. NULL is ignored.
 *
 * All of it is C heap memory, so that free on data of each image and on the array does the same.
 *
 * Pointers:
 * result_images is NULL or an array of num_images images that the library returned and that was not freed.
 */
SD_API
void free_sd_images(struct sd_image_t *result_images,
                    int num_images);

/**
 * Frees sound returned by generate_video. NULL is ignored.
 *
 * Pointers:
 * audio is NULL or sound that the library returned and that was not freed.
 */
SD_API void free_sd_audio(struct sd_audio_t *audio);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STABLE_DIFFUSION_H */
