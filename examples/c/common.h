/* What the examples share: options, messages, a progress line, writing of results. */
#ifndef EXAMPLE_COMMON_H
#define EXAMPLE_COMMON_H

#include "png.h"
#include "stable-diffusion-ext.h"
#include "stable-diffusion.h"

#include <time.h>

typedef struct {
    const char *model, *vae, *taesd, *prompt, *negative, *output, *input, *mask, *method, *scheduler, *type;
    int width, height, steps, threads, batch, cancel_at, verbose, mmap;
    float guidance, strength;
    long long seed;
} options_t;

static options_t default_options(void) {
    options_t o = {NULL, NULL, NULL, "", "", "output.png", NULL, NULL, NULL, NULL, NULL,
                   512,  512,  20,   0,  1,  1,            0,    0,    7.0f, 0.75f, 42};
    return o;
}

static double seconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The library's messages: all with -v, else warnings and errors. */
static void on_log(enum sd_log_level_t level, const char* text, void* data) {
    const options_t* options = (const options_t*)data;
    if (options->verbose || level >= SD_LOG_WARN) {
        fputs(text, stderr);
    }
}

static void on_progress(int step, int steps, float time, void* data) {
    (void)data;
    fprintf(stderr, "\r%d/%d, %.2f s each   ", step, steps, (double)time);
    if (step >= steps) {
        fputc('\n', stderr);
    }
    fflush(stderr);
}

static int fail(const char* what) {
    const char* why = sd_ext_last_error();
    fprintf(stderr, "%s%s%s\n", what, *why ? ": " : "", why);
    return 1;
}

/* One option and its value; returns how many words were taken, 0 when unknown. */
static int take_option(options_t* o, const char* name, const char* value) {
    const struct {
        const char *brief, *name;
        const char** text;
        int* number;
        float* real;
    } known[] = {
        {"-m", "--model", &o->model, NULL, NULL},        {"", "--vae", &o->vae, NULL, NULL},
        {"", "--taesd", &o->taesd, NULL, NULL},          {"-p", "--prompt", &o->prompt, NULL, NULL},
        {"-n", "--negative", &o->negative, NULL, NULL},  {"-o", "--output", &o->output, NULL, NULL},
        {"-i", "--input", &o->input, NULL, NULL},        {"", "--mask", &o->mask, NULL, NULL},
        {"", "--method", &o->method, NULL, NULL},        {"", "--scheduler", &o->scheduler, NULL, NULL},
        {"", "--type", &o->type, NULL, NULL},            {"-W", "--width", NULL, &o->width, NULL},
        {"-H", "--height", NULL, &o->height, NULL},      {"-s", "--steps", NULL, &o->steps, NULL},
        {"-t", "--threads", NULL, &o->threads, NULL},    {"-b", "--batch", NULL, &o->batch, NULL},
        {"", "--cancel-at", NULL, &o->cancel_at, NULL},  {"", "--guidance", NULL, NULL, &o->guidance},
        {"", "--strength", NULL, NULL, &o->strength},
    };
    if (strcmp(name, "-v") == 0 || strcmp(name, "--mmap") == 0) {
        *(name[1] == 'v' ? &o->verbose : &o->mmap) = 1;
        return 1;
    }
    if (value == NULL) {
        return 0;
    }
    if (strcmp(name, "--seed") == 0) {
        o->seed = atoll(value);
        return 2;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (strcmp(name, known[i].brief) == 0 || strcmp(name, known[i].name) == 0) {
            if (known[i].text) {
                *known[i].text = value;
            } else if (known[i].number) {
                *known[i].number = atoi(value);
            } else {
                *known[i].real = (float)atof(value);
            }
            return 2;
        }
    }
    return 0;
}

/* Reads the command line. Returns 0 after printing `usage` when it does not fit. */
static int parse(options_t* options, int argc, char** argv, const char* usage) {
    for (int i = 1; i < argc;) {
        int taken = take_option(options, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
        if (taken == 0) {
            fprintf(stderr, "%s: unknown or incomplete option\nusage: %s %s\n", argv[i], argv[0], usage);
            return 0;
        }
        i += taken;
    }
    if (options->model == NULL) {
        fprintf(stderr, "usage: %s %s\n", argv[0], usage);
        return 0;
    }
    return 1;
}

static inline sd_ctx_t* load(options_t* options) {
    sd_ctx_params_t params;
    sd_set_log_callback(on_log, options);
    sd_set_progress_callback(on_progress, NULL);
    sd_ctx_params_init(&params);
    params.model_path = options->model;
    params.vae_path = options->vae;
    params.taesd_path = options->taesd;
    params.enable_mmap = options->mmap != 0;
    if (options->threads > 0) {
        params.n_threads = options->threads;
    }
    if (options->type != NULL) {
        params.wtype = str_to_sd_type(options->type);
    }
    return new_sd_ctx(&params);
}

/* The request that the options stand for. */
static inline sd_img_gen_params_t request(const options_t* options) {
    sd_img_gen_params_t params;
    sd_img_gen_params_init(&params);
    params.prompt = options->prompt;
    params.negative_prompt = options->negative;
    params.width = options->width;
    params.height = options->height;
    params.seed = options->seed;
    params.batch_count = options->batch;
    params.strength = options->strength;
    params.sample_params.sample_steps = options->steps;
    params.sample_params.guidance.txt_cfg = options->guidance;
    if (options->method != NULL) {
        params.sample_params.sample_method = str_to_sample_method(options->method);
    }
    if (options->scheduler != NULL) {
        params.sample_params.scheduler = str_to_scheduler(options->scheduler);
    }
    return params;
}

/* Writes image `index` of `count` to the output's name, numbered when there are several. Returns 0 on failure. */
static inline int write_result(const options_t* options, const sd_image_t* image, int index, int count) {
    char name[4096];
    const char* dot = strrchr(options->output, '.');
    int stem = dot == NULL ? (int)strlen(options->output) : (int)(dot - options->output);
    if (count > 1) {
        snprintf(name, sizeof(name), "%.*s_%d%s", stem, options->output, index, dot == NULL ? "" : dot);
    } else {
        snprintf(name, sizeof(name), "%s", options->output);
    }
    if (!png_write(name, image->data, image->width, image->height, image->channel)) {
        fprintf(stderr, "%s: could not be written\n", name);
        return 0;
    }
    printf("file:   %s (%u x %u)\n", name, image->width, image->height);
    return 1;
}

/* Generates and writes; prints prompt, seconds and files. Returns the exit status. */
static inline int generate_and_write(sd_ctx_t* ctx, const options_t* options, const sd_img_gen_params_t* params) {
    sd_image_t* images = NULL;
    int count = 0, status = 0;
    double start = seconds();
    printf("prompt: %s\n", options->prompt);
    fflush(stdout);
    if (!generate_image(ctx, params, &images, &count)) {
        return fail("no picture");
    }
    printf("time:   %.2f s\n", seconds() - start);
    for (int i = 0; i < count; i++) {
        status |= !write_result(options, &images[i], i, count);
    }
    free_sd_images(images, count);
    return status;
}

#endif
