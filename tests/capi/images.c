/* Edge detection on odd pictures, and the functions that tell about library and machine. */
#include "check.h"
#include "stable-diffusion-ext.h"
#include "stable-diffusion.h"

static void edges(void) {
    static const uint32_t sides[] = {1, 2, 3, 5, 8, 64, 65};
    size_t i, j;
    uint32_t channel;
    for (i = 0; i < sizeof(sides) / sizeof(*sides); i++) {
        for (j = 0; j < sizeof(sides) / sizeof(*sides); j++) {
            for (channel = 1; channel <= 4; channel++) {
                size_t size = (size_t)sides[i] * sides[j] * channel, k;
                sd_image_t image = {sides[i], sides[j], channel, NULL};
                image.data = (uint8_t*)malloc(size);
                CHECK(image.data != NULL);
                for (k = 0; k < size; k++) {
                    image.data[k] = (uint8_t)(k * 37 + 11);
                }
                CHECK(preprocess_canny(image, 0.08f, 0.08f, 0.8f, 1.0f, (k & 1) != 0));
                free(image.data);
            }
        }
    }
}

static void odd_pictures(void) {
    uint8_t pixel[8] = {0};
    sd_image_t image = {1, 1, 0, NULL};
    image.data = pixel;
    CHECK(!preprocess_canny(image, 0.08f, 0.08f, 0.8f, 1.0f, false));
    CHECK(has(sd_ext_last_error(), "channels"));
    image.channel = 5;
    CHECK(!preprocess_canny(image, 0.08f, 0.08f, 0.8f, 1.0f, false));
    image.channel = 3;
    image.width = 0;
    CHECK(!preprocess_canny(image, 0.08f, 0.08f, 0.8f, 1.0f, false));
    image.width = 0xffffffffu;
    image.height = 0xffffffffu;
    CHECK(!preprocess_canny(image, 0.08f, 0.08f, 0.8f, 1.0f, false));
    CHECK(has(sd_ext_last_error(), "4294967295"));
    image.width = image.height = 1;
    CHECK(preprocess_canny(image, 0.08f, 0.08f, 0.8f, 1.0f, true));
    CHECK(sd_ext_last_error()[0] == 0);
}

static void information(void) {
    char small[4];
    char* whole;
    size_t needed = sd_list_devices(NULL, 0);
    CHECK(sd_get_num_physical_cores() >= 1);
    CHECK(has(sd_get_system_info(), "System Info"));
    CHECK(sd_version() != NULL && *sd_version() && sd_commit() != NULL && *sd_commit());
    CHECK(sd_ext_abi_version() == SD_EXT_ABI_VERSION);
    CHECK(needed > 0);
    CHECK(sd_list_devices(small, sizeof(small)) == needed && strlen(small) == 3);
    CHECK(sd_list_devices(small, 1) == needed && small[0] == 0);
    CHECK(sd_list_devices(NULL, 100) == needed && sd_list_devices(small, 0) == needed);
    whole = (char*)malloc(needed + 1);
    CHECK(sd_list_devices(whole, needed + 1) == needed && strlen(whole) == needed);
    CHECK(has(whole, "\t") && whole[needed - 1] == '\n');
    free(whole);
}

int main(void) {
    edges();
    odd_pictures();
    information();
    return failures != 0;
}
