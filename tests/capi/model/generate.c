/*
 * Calls on a loaded model: repeated seeds, cancelling at every point, callbacks that call back, threads, freeing while
 * generating, odd requests. Takes the path of a small model.
 */
#include "../check.h"
#include "stable-diffusion-ext.h"
#include "stable-diffusion.h"

#include <pthread.h>

enum { SIDE = 64, STEPS = 2 };

typedef struct {
    sd_ctx_t* ctx;
    int at_log_line, at_step;
    enum sd_cancel_mode_t mode;
    int lines, steps, nested_tried;
} watcher_t;

static void on_log(enum sd_log_level_t level, const char* text, void* data) {
    watcher_t* w = (watcher_t*)data;
    (void)level;
    CHECK(text[strlen(text) - 1] == '\n');
    if (++w->lines == w->at_log_line) {
        sd_cancel_generation(w->ctx, w->mode);
    }
}

/* Sampling steps are those out of as many as were asked for; loading and decoding report their own counts. */
static void on_progress(int step, int steps, float time, void* data) {
    watcher_t* w = (watcher_t*)data;
    (void)time;
    if (steps == STEPS && step > 0) {
        w->steps++;
        if (step == w->at_step) {
            sd_cancel_generation(w->ctx, w->mode);
        }
    }
}

static sd_ctx_t* load(const char* path) {
    sd_ctx_params_t params;
    sd_ctx_t* ctx;
    sd_ctx_params_init(&params);
    params.model_path = path;
    params.n_threads = 2;
    ctx = new_sd_ctx(&params);
    if (ctx == NULL) {
        fprintf(stderr, "%s: %s\n", path, sd_ext_last_error());
        exit(1);
    }
    return ctx;
}

static sd_img_gen_params_t request(void) {
    sd_img_gen_params_t params;
    sd_img_gen_params_init(&params);
    params.prompt = "a red apple";
    params.width = params.height = SIDE;
    params.seed = 42;
    params.sample_params.sample_steps = STEPS;
    params.sample_params.guidance.txt_cfg = 5.0f;
    return params;
}

/* Generates one picture; its sum, or 0 when it failed. */
static unsigned long picture(sd_ctx_t* ctx, const sd_img_gen_params_t* params, int wanted) {
    sd_image_t* images = (sd_image_t*)1;
    int count = -1, i;
    unsigned long sum = 1;
    bool made = generate_image(ctx, params, &images, &count);
    CHECK(made ? images != NULL && count == wanted : images == NULL && count == 0);
    for (i = 0; i < count; i++) {
        size_t k, size = (size_t)images[i].width * images[i].height * images[i].channel;
        CHECK(images[i].width == (uint32_t)params->width && images[i].channel == 3);
        for (k = 0; k < size; k++) {
            sum = sum * 31 + images[i].data[k];
        }
    }
    free_sd_images(images, count);
    return made ? sum : 0;
}

static unsigned long facts_and_seeds(sd_ctx_t* ctx) {
    sd_img_gen_params_t params = request();
    unsigned long first;
    CHECK(sd_ctx_supports_image_generation(ctx) && !sd_ctx_supports_video_generation(ctx));
    CHECK(sd_get_default_sample_method(ctx) == EULER_A_SAMPLE_METHOD);
    CHECK(sd_get_default_scheduler(ctx, EULER_SAMPLE_METHOD) == DISCRETE_SCHEDULER);
    CHECK(sd_get_default_scheduler(ctx, TCD_SAMPLE_METHOD) == LCM_SCHEDULER);
    first = picture(ctx, &params, 1);
    CHECK(first != 0 && first == picture(ctx, &params, 1));
    params.seed = 43;
    CHECK(picture(ctx, &params, 1) != first);
    CHECK(sd_ext_last_error()[0] == 0);
    return first;
}

static void cancelling(sd_ctx_t* ctx, unsigned long usual) {
    sd_img_gen_params_t params = request(), batch = request();
    watcher_t w;
    memset(&w, 0, sizeof(w));
    w.ctx = ctx;
    batch.batch_count = 3;
    sd_set_log_callback(on_log, &w);
    sd_set_progress_callback(on_progress, &w);

    /* Without a running call there is nothing to stop. */
    sd_cancel_generation(ctx, SD_CANCEL_ALL);
    CHECK(picture(ctx, &params, 1) == usual);
    CHECK(w.steps == STEPS);

    w.at_step = 1;
    CHECK(picture(ctx, &params, 1) == 0);
    CHECK(has(sd_ext_last_error(), "cancelled"));
    w.at_step = 0;
    CHECK(picture(ctx, &params, 1) == usual);

    /* The first message comes before anything else is done. */
    w.at_log_line = w.lines + 1;
    CHECK(picture(ctx, &params, 1) == 0);
    w.at_log_line = 0;

    w.at_step = 1;
    w.mode = SD_CANCEL_NEW_LATENTS;
    CHECK(picture(ctx, &batch, 1) == usual);
    w.mode = SD_CANCEL_RESET;
    CHECK(picture(ctx, &params, 1) == usual);
    w.mode = (enum sd_cancel_mode_t)99;
    CHECK(picture(ctx, &params, 1) == 0);

    sd_set_log_callback(NULL, NULL);
    sd_set_progress_callback(NULL, NULL);
    CHECK(picture(ctx, &params, 1) == usual);
}

static void call_back(int step, int steps, float time, void* data) {
    watcher_t* w = (watcher_t*)data;
    (void)step;
    (void)time;
    if (steps == STEPS && !w->nested_tried) {
        sd_img_gen_params_t params = request();
        w->nested_tried = 1;
        CHECK(picture(w->ctx, &params, 1) == 0);
        CHECK(has(sd_ext_last_error(), "callback"));
        CHECK(sd_ctx_supports_image_generation(w->ctx));
    }
}

static void free_inside(int step, int steps, float time, void* data) {
    watcher_t* w = (watcher_t*)data;
    (void)time;
    if (steps == STEPS && step == 1 && w->ctx != NULL) {
        free_sd_ctx(w->ctx);
        w->ctx = NULL;
    }
}

static void callbacks_that_call_back(const char* path, unsigned long usual) {
    sd_img_gen_params_t params = request();
    watcher_t w;
    memset(&w, 0, sizeof(w));
    w.ctx = load(path);
    sd_set_progress_callback(call_back, &w);
    CHECK(picture(w.ctx, &params, 1) == usual && w.nested_tried);
    sd_set_progress_callback(free_inside, &w);
    CHECK(picture(w.ctx, &params, 1) == usual && w.ctx == NULL);
    sd_set_progress_callback(NULL, NULL);
}

typedef struct {
    sd_ctx_t* ctx;
    unsigned long sum;
    pthread_mutex_t lock;
    pthread_cond_t started;
    int running;
} job_t;

static void* work(void* data) {
    job_t* job = (job_t*)data;
    sd_img_gen_params_t params = request();
    job->sum = picture(job->ctx, &params, 1);
    return NULL;
}

static void tell_started(int step, int steps, float time, void* data) {
    job_t* job = (job_t*)data;
    (void)time;
    if (steps == STEPS && step == 1) {
        pthread_mutex_lock(&job->lock);
        job->running = 1;
        pthread_cond_signal(&job->started);
        pthread_mutex_unlock(&job->lock);
    }
}

static void threads(const char* path, sd_ctx_t* ctx, unsigned long usual) {
    job_t jobs[3];
    pthread_t ids[3];
    int i;
    memset(jobs, 0, sizeof(jobs));
    /* Two calls on one context, one on another. */
    jobs[0].ctx = jobs[1].ctx = ctx;
    jobs[2].ctx = load(path);
    for (i = 0; i < 3; i++) {
        CHECK(pthread_create(&ids[i], NULL, work, &jobs[i]) == 0);
    }
    for (i = 0; i < 3; i++) {
        pthread_join(ids[i], NULL);
        CHECK(jobs[i].sum == usual);
    }
    /* Cancelled and freed at once while another thread generates: the call returns first. */
    pthread_mutex_init(&jobs[2].lock, NULL);
    pthread_cond_init(&jobs[2].started, NULL);
    sd_set_progress_callback(tell_started, &jobs[2]);
    CHECK(pthread_create(&ids[2], NULL, work, &jobs[2]) == 0);
    pthread_mutex_lock(&jobs[2].lock);
    while (!jobs[2].running) {
        pthread_cond_wait(&jobs[2].started, &jobs[2].lock);
    }
    pthread_mutex_unlock(&jobs[2].lock);
    sd_cancel_generation(jobs[2].ctx, SD_CANCEL_ALL);
    free_sd_ctx(jobs[2].ctx);
    pthread_join(ids[2], NULL);
    CHECK(jobs[2].sum == 0 || jobs[2].sum == usual);
    sd_set_progress_callback(NULL, NULL);
}

static void odd_requests(sd_ctx_t* ctx, unsigned long usual) {
    static uint8_t pixels[5 * 7 * 4];
    sd_image_t* images;
    sd_audio_t* audio;
    int count;
    sd_vid_gen_params_t video;
    sd_img_gen_params_t p = request();
    CHECK(!generate_image(ctx, &p, NULL, &count));
    CHECK(!generate_image(ctx, NULL, &images, &count) && images == NULL);
    CHECK(generate_image(ctx, &p, &images, NULL));
    free_sd_images(images, 1);
#define REFUSED(change) \
    p = request(); \
    change; \
    CHECK(picture(ctx, &p, 1) == 0); \
    CHECK(sd_ext_last_error()[0] != 0)
    REFUSED(p.width = 0);
    REFUSED(p.height = -64);
    REFUSED(p.width = 2147483647);
    REFUSED(p.batch_count = 0);
    REFUSED(p.batch_count = -1);
    REFUSED(p.sample_params.sample_steps = 0);
    REFUSED(p.sample_params.sample_steps = -1);
    REFUSED(p.strength = -1.0f);
    REFUSED(p.lora_count = 1);
    REFUSED(p.ref_images_count = 3);
    REFUSED((p.init_image.data = pixels, p.init_image.width = 5));
#define MADE(change) \
    p = request(); \
    p.sample_params.sample_steps = 1; \
    change; \
    CHECK(picture(ctx, &p, 1) != 0)
    MADE(p.prompt = NULL);
    MADE(p.prompt = "\xff\xfe (((x:.");
    MADE(p.clip_skip = 99);
    MADE(p.sample_params.sample_method = (enum sample_method_t)77);
    MADE(p.sample_params.scheduler = (enum scheduler_t)77);
    for (count = 1; count <= 4; count++) {
        sd_image_t image = {5, 7, 0, NULL};
        image.data = pixels;
        image.channel = (uint32_t)count;
        MADE((p.init_image = image, p.mask_image = image, p.strength = 0.9f));
    }
    sd_vid_gen_params_init(&video);
    CHECK(!generate_video(ctx, &video, &images, &count, &audio) && images == NULL && audio == NULL);
    p = request();
    CHECK(picture(ctx, &p, 1) == usual);
}

int main(int argc, char** argv) {
    sd_ctx_t* ctx;
    unsigned long usual;
    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL\n", argv[0]);
        return 2;
    }
    ctx = load(argv[1]);
    usual = facts_and_seeds(ctx);
    cancelling(ctx, usual);
    callbacks_that_call_back(argv[1], usual);
    threads(argv[1], ctx, usual);
    odd_requests(ctx, usual);
    free_sd_ctx(ctx);
    return failures != 0;
}
