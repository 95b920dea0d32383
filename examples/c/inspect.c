/* What model files are, without reading their weights:  inspect FILE... */
#include "stable-diffusion-ext.h"

#include <stdio.h>

int main(int argc, char** argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE_OR_FOLDER...\n", argv[0]);
        return 2;
    }
    char* text = sd_ext_inspect_model((const char* const*)(argv + 1), (size_t)(argc - 1));
    if (text == NULL) {
        fprintf(stderr, "%s\n", sd_ext_last_error());
        return 1;
    }
    puts(text);
    sd_ext_free_text(text);
    return 0;
}
