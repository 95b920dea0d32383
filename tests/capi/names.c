/* Names and their parsing, values out of range, NULL. */
#include "check.h"
#include "stable-diffusion.h"

#define ROUND_TRIP(type, count, name, parse) \
    do { \
        int i; \
        for (i = 0; i < (int)(count); i++) { \
            const char* text = name((enum type)i); \
            CHECK(text != NULL && strcmp(text, "NONE") != 0); \
            CHECK((int)parse(text) == i); \
        } \
        CHECK(strcmp(name(count), "NONE") == 0); \
        CHECK(strcmp(name((enum type)(count + 1)), "NONE") == 0); \
        CHECK(strcmp(name((enum type)1000), "NONE") == 0); \
        CHECK(strcmp(name((enum type) - 7), "NONE") == 0); \
        CHECK(parse("no such name") == count); \
        CHECK(parse("") == count); \
        CHECK(parse(NULL) == count); \
    } while (0)

int main(void) {
    int i;
    ROUND_TRIP(rng_type_t, RNG_TYPE_COUNT, sd_rng_type_name, str_to_rng_type);
    ROUND_TRIP(sample_method_t, SAMPLE_METHOD_COUNT, sd_sample_method_name, str_to_sample_method);
    ROUND_TRIP(scheduler_t, SCHEDULER_COUNT, sd_scheduler_name, str_to_scheduler);
    ROUND_TRIP(prediction_t, PREDICTION_COUNT, sd_prediction_name, str_to_prediction);
    ROUND_TRIP(preview_t, PREVIEW_COUNT, sd_preview_name, str_to_preview);
    ROUND_TRIP(lora_apply_mode_t, LORA_APPLY_MODE_COUNT, sd_lora_apply_mode_name, str_to_lora_apply_mode);
    ROUND_TRIP(sd_hires_upscaler_t, SD_HIRES_UPSCALER_COUNT, sd_hires_upscaler_name, str_to_sd_hires_upscaler);
    /* Types have gaps, whose two "DEPRECATED" entries share a name. */
    for (i = 0; i < (int)SD_TYPE_COUNT; i++) {
        const char* text = sd_type_name((enum sd_type_t)i);
        CHECK(text != NULL);
        CHECK((int)str_to_sd_type(text) == (i == 5 ? 4 : i));
    }
    CHECK(strcmp(sd_type_name(SD_TYPE_COUNT), "NONE") == 0);
    CHECK(strcmp(sd_type_name((enum sd_type_t)1000), "NONE") == 0);
    CHECK(str_to_sd_type(NULL) == SD_TYPE_COUNT);
    CHECK(str_to_sd_type("q4_k") == SD_TYPE_COUNT);
    CHECK(str_to_sd_type("q4_K") == SD_TYPE_Q4_K);
    CHECK(str_to_scheduler("normal") == DISCRETE_SCHEDULER);
    return failures != 0;
}
