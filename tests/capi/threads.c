/* Log callback, and errors that belong to the thread that made them. */
#include "check.h"
#include "stable-diffusion-ext.h"
#include "stable-diffusion.h"

#include <pthread.h>

typedef struct {
    int lines;
    pthread_t thread;
    char last[4097];
    enum sd_log_level_t level;
} heard_t;

static void hear(enum sd_log_level_t level, const char* text, void* data) {
    heard_t* heard = (heard_t*)data;
    size_t length = strlen(text);
    CHECK(length > 0 && length <= 4096 && text[length - 1] == '\n');
    heard->lines++;
    heard->thread = pthread_self();
    heard->level = level;
    memcpy(heard->last, text, length + 1);
}

static void* fail_elsewhere(void* data) {
    (void)data;
    CHECK(sd_ext_last_error()[0] == 0);
    CHECK(!convert(NULL, NULL, "x", SD_TYPE_F16, NULL, false));
    CHECK(has(sd_ext_last_error(), "input_path"));
    return NULL;
}

static void* fail_often(void* data) {
    int i;
    (void)data;
    for (i = 0; i < 200; i++) {
        CHECK(!load_imatrix(NULL));
        CHECK(has(sd_ext_last_error(), "imatrix_path"));
    }
    return NULL;
}

int main(void) {
    static heard_t heard;
    pthread_t other, many[4];
    int i;
    sd_set_log_callback(hear, &heard);
    CHECK(new_sd_ctx(NULL) == NULL);
    CHECK(heard.lines == 1 && heard.level == SD_LOG_ERROR && pthread_equal(heard.thread, pthread_self()));
    CHECK(has(heard.last, " - ") && has(heard.last, ".rs:") && has(heard.last, "sd_ctx_params is NULL\n"));
    CHECK(pthread_create(&other, NULL, fail_elsewhere, NULL) == 0);
    pthread_join(other, NULL);
    CHECK(has(sd_ext_last_error(), "sd_ctx_params is NULL"));
    CHECK(heard.lines == 2 && has(heard.last, "input_path"));
    sd_set_log_callback(NULL, NULL);
    CHECK(!load_imatrix(NULL));
    CHECK(heard.lines == 2);
    for (i = 0; i < 4; i++) {
        CHECK(pthread_create(&many[i], NULL, fail_often, NULL) == 0);
    }
    for (i = 0; i < 4; i++) {
        pthread_join(many[i], NULL);
    }
    return failures != 0;
}
