/* Both headers, twice and in either order, in C11 and C++17. */
#include "stable-diffusion-ext.h"
#include "stable-diffusion.h"

#include "stable-diffusion-ext.h"
#include "stable-diffusion.h"

/* The spellings that clients use for enums and structs. */
static enum sd_type_t with_tag(enum sd_type_t type) {
    return type;
}

int main(void) {
    sd_image_t image = {0, 0, 0, NULL};
    return with_tag(SD_TYPE_F32) == SD_TYPE_F32 && image.data == NULL ? 0 : 1;
}
