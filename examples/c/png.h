/*
 * Reading and writing of pictures for the examples: PNG (8 bit, not interlaced) and binary PPM/PGM in, PNG out.
 * The library itself knows pixels only. Written without compression, so files are large.
 */
#ifndef EXAMPLE_PNG_H
#define EXAMPLE_PNG_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t width, height, channels;
    uint8_t* pixels; /* NULL when reading failed */
} picture_t;

static const uint8_t PNG_SIGNATURE[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

static uint32_t png_crc(uint32_t crc, const uint8_t* data, size_t size) {
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1u)));
        }
    }
    return crc;
}

static void png_put32(uint8_t* to, uint32_t value) {
    to[0] = (uint8_t)(value >> 24);
    to[1] = (uint8_t)(value >> 16);
    to[2] = (uint8_t)(value >> 8);
    to[3] = (uint8_t)value;
}

static uint32_t png_get32(const uint8_t* from) {
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

/* Writes a chunk: length, name, data, checksum. */
static int png_chunk(FILE* file, const char* name, const uint8_t* data, uint32_t size) {
    uint8_t head[8], tail[4];
    png_put32(head, size);
    memcpy(head + 4, name, 4);
    uint32_t crc = png_crc(0xffffffffu, head + 4, 4);
    png_put32(tail, ~png_crc(crc, data, size));
    return fwrite(head, 1, 8, file) == 8 && fwrite(data, 1, size, file) == size && fwrite(tail, 1, 4, file) == 4;
}

/* Packs rows, each with filter 0 before it, into a zlib stream of stored blocks. */
static uint8_t* png_pack(const uint8_t* pixels, size_t row, size_t rows, size_t* size) {
    size_t raw = (row + 1) * rows, blocks = raw / 65535 + 1, at = 0, left_in_block = 0, left = raw;
    uint8_t* out = (uint8_t*)malloc(raw + blocks * 5 + 6);
    uint32_t a = 1, b = 0;
    if (out == NULL) {
        return NULL;
    }
    out[at++] = 0x78;
    out[at++] = 0x01;
    for (size_t y = 0; y < rows; y++) {
        for (size_t x = 0; x <= row; x++) {
            uint8_t byte = x == 0 ? 0 : pixels[y * row + x - 1];
            if (left_in_block == 0) {
                size_t block = left < 65535 ? left : 65535;
                out[at++] = block == left;
                out[at++] = (uint8_t)block;
                out[at++] = (uint8_t)(block >> 8);
                out[at++] = (uint8_t)~block;
                out[at++] = (uint8_t)(~block >> 8);
                left_in_block = block;
            }
            out[at++] = byte;
            left_in_block--;
            left--;
            a = (a + byte) % 65521;
            b = (b + a) % 65521;
        }
    }
    png_put32(out + at, b << 16 | a);
    *size = at + 4;
    return out;
}

/* Writes a picture of 1 to 4 channels. Returns 0 on failure. */
static inline int png_write(const char* path, const uint8_t* pixels, uint32_t width, uint32_t height, uint32_t channels) {
    static const uint8_t colour_types[5] = {0, 0, 4, 2, 6};
    uint8_t header[13] = {0};
    size_t size = 0;
    FILE* file;
    int done;
    if (channels < 1 || channels > 4) {
        return 0;
    }
    uint8_t* packed = png_pack(pixels, (size_t)width * channels, height, &size);
    file = packed == NULL ? NULL : fopen(path, "wb");
    if (file == NULL) {
        free(packed);
        return 0;
    }
    png_put32(header, width);
    png_put32(header + 4, height);
    header[8] = 8;
    header[9] = colour_types[channels];
    done = fwrite(PNG_SIGNATURE, 1, 8, file) == 8 && png_chunk(file, "IHDR", header, 13) &&
           png_chunk(file, "IDAT", packed, (uint32_t)size) && png_chunk(file, "IEND", header, 0);
    done = fclose(file) == 0 && done;
    free(packed);
    return done;
}

/* --- inflate --------------------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t* in;
    size_t size, at;
    uint32_t bits, count;
    uint8_t* out;
    size_t room, made;
    int bad;
} inflate_t;

/* A Huffman code: how many codes of each length, and the symbols in order. */
typedef struct {
    uint16_t counts[16], symbols[288];
} code_t;

static uint32_t inflate_bits(inflate_t* s, uint32_t need) {
    while (s->count < need) {
        if (s->at >= s->size) {
            s->bad = 1;
            return 0;
        }
        s->bits |= (uint32_t)s->in[s->at++] << s->count;
        s->count += 8;
    }
    uint32_t value = s->bits & ((1u << need) - 1u);
    s->bits >>= need;
    s->count -= need;
    return value;
}

static void inflate_code(code_t* code, const uint8_t* lengths, int n) {
    uint16_t offsets[16] = {0};
    memset(code, 0, sizeof(*code));
    for (int i = 0; i < n; i++) {
        code->counts[lengths[i]]++;
    }
    code->counts[0] = 0;
    for (int i = 1; i < 15; i++) {
        offsets[i + 1] = (uint16_t)(offsets[i] + code->counts[i]);
    }
    for (int i = 0; i < n; i++) {
        if (lengths[i] != 0) {
            code->symbols[offsets[lengths[i]]++] = (uint16_t)i;
        }
    }
}

static uint32_t inflate_symbol(inflate_t* s, const code_t* code) {
    int32_t value = 0, first = 0, index = 0;
    for (int length = 1; length < 16 && !s->bad; length++) {
        value |= (int32_t)inflate_bits(s, 1);
        int32_t count = code->counts[length];
        if (value - count < first) {
            return code->symbols[index + value - first];
        }
        index += count;
        first = (first + count) * 2;
        value *= 2;
    }
    s->bad = 1;
    return 0;
}

static void inflate_put(inflate_t* s, uint8_t byte) {
    if (s->made < s->room) {
        s->out[s->made++] = byte;
    } else {
        s->bad = 1;
    }
}

static void inflate_block(inflate_t* s, const code_t* literals, const code_t* distances) {
    static const uint16_t length_base[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                             31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t length_extra[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                             2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t distance_base[30] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,
                                               33,  49,  65,  97,  129, 193,  257,  385,  513,  769,
                                               1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    while (!s->bad) {
        uint32_t symbol = inflate_symbol(s, literals);
        if (s->bad || symbol == 256) {
            return;
        }
        if (symbol < 256) {
            inflate_put(s, (uint8_t)symbol);
            continue;
        }
        symbol -= 257;
        uint32_t d, length, distance;
        if (symbol >= 29) {
            s->bad = 1;
            return;
        }
        length = length_base[symbol] + inflate_bits(s, length_extra[symbol]);
        d = inflate_symbol(s, distances);
        if (d >= 30) {
            s->bad = 1;
            return;
        }
        distance = distance_base[d] + inflate_bits(s, d < 4 ? 0 : d / 2 - 1);
        if (distance > s->made) {
            s->bad = 1;
            return;
        }
        while (length-- > 0 && !s->bad) {
            inflate_put(s, s->out[s->made - distance]);
        }
    }
}

static void inflate_fixed(inflate_t* s) {
    uint8_t lengths[288];
    code_t literals, distances;
    for (int i = 0; i < 288; i++) {
        lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    }
    inflate_code(&literals, lengths, 288);
    memset(lengths, 5, 30);
    inflate_code(&distances, lengths, 30);
    inflate_block(s, &literals, &distances);
}

static void inflate_dynamic(inflate_t* s) {
    static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[320] = {0};
    code_t code, literals, distances;
    int n_literals = (int)inflate_bits(s, 5) + 257, n_distances = (int)inflate_bits(s, 5) + 1;
    int n_codes = (int)inflate_bits(s, 4) + 4, i = 0;
    for (int k = 0; k < n_codes; k++) {
        lengths[order[k]] = (uint8_t)inflate_bits(s, 3);
    }
    inflate_code(&code, lengths, 19);
    memset(lengths, 0, sizeof(lengths));
    while (i < n_literals + n_distances && !s->bad) {
        uint32_t symbol = inflate_symbol(s, &code), repeat = 1;
        uint8_t value = (uint8_t)symbol;
        if (symbol == 16) {
            value = i > 0 ? lengths[i - 1] : 0;
            repeat = 3 + inflate_bits(s, 2);
        } else if (symbol == 17) {
            value = 0;
            repeat = 3 + inflate_bits(s, 3);
        } else if (symbol == 18) {
            value = 0;
            repeat = 11 + inflate_bits(s, 7);
        }
        while (repeat-- > 0 && i < n_literals + n_distances) {
            lengths[i++] = value;
        }
    }
    if (n_literals > 286 || n_distances > 30) {
        s->bad = 1;
        return;
    }
    inflate_code(&literals, lengths, n_literals);
    inflate_code(&distances, lengths + n_literals, n_distances);
    inflate_block(s, &literals, &distances);
}

/* Unpacks a zlib stream into exactly `room` bytes. Returns 0 when it does not. */
static int inflate_all(const uint8_t* in, size_t size, uint8_t* out, size_t room) {
    inflate_t s = {in, size, 2, 0, 0, out, room, 0, 0};
    uint32_t last = 0;
    while (!last && !s.bad) {
        last = inflate_bits(&s, 1);
        uint32_t kind = inflate_bits(&s, 2);
        if (kind == 0) {
            s.bits = s.count = 0;
            if (s.at + 4 > s.size) {
                return 0;
            }
            size_t length = s.in[s.at] | (size_t)s.in[s.at + 1] << 8;
            s.at += 4;
            if (length > s.size - s.at || length > s.room - s.made) {
                return 0;
            }
            memcpy(s.out + s.made, s.in + s.at, length);
            s.made += length;
            s.at += length;
        } else if (kind == 1) {
            inflate_fixed(&s);
        } else if (kind == 2) {
            inflate_dynamic(&s);
        } else {
            return 0;
        }
    }
    return !s.bad && s.made == room;
}

/* --- reading --------------------------------------------------------------------------------------------------- */

static uint8_t* read_file(const char* path, size_t* size) {
    FILE* file = fopen(path, "rb");
    uint8_t* data = NULL;
    long length;
    if (file == NULL) {
        return NULL;
    }
    if (fseek(file, 0, SEEK_END) == 0 && (length = ftell(file)) > 0 && fseek(file, 0, SEEK_SET) == 0) {
        data = (uint8_t*)malloc((size_t)length);
        *size = (size_t)length;
        if (data != NULL && fread(data, 1, *size, file) != *size) {
            free(data);
            data = NULL;
        }
    }
    fclose(file);
    return data;
}

/* Undoes the row filters in place; each row has its filter's number before it. */
static int png_unfilter(uint8_t* rows, size_t row, size_t count, size_t pixel) {
    for (size_t y = 0; y < count; y++) {
        uint8_t* line = rows + y * (row + 1) + 1;
        const uint8_t* above = y > 0 ? line - row - 1 : NULL;
        uint8_t filter = line[-1];
        for (size_t x = 0; x < row; x++) {
            int a = x >= pixel ? line[x - pixel] : 0, b = above ? above[x] : 0;
            int c = above && x >= pixel ? above[x - pixel] : 0, p = a + b - c;
            int pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
            int paeth = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
            int add = filter == 0 ? 0 : filter == 1 ? a : filter == 2 ? b : filter == 3 ? (a + b) / 2 : paeth;
            if (filter > 4) {
                return 0;
            }
            line[x] = (uint8_t)(line[x] + add);
        }
    }
    return 1;
}

static picture_t png_decode(const uint8_t* data, size_t size) {
    static const uint32_t channels_of[7] = {1, 0, 3, 1, 2, 0, 4};
    picture_t picture = {0, 0, 0, NULL};
    const uint8_t *header = data + 16, *palette = NULL;
    size_t at = 8, packed_size = 0, palette_size = 0;
    uint8_t *packed, *rows = NULL;
    if (size < 33 || memcmp(data + 12, "IHDR", 4) != 0 || header[8] != 8 || header[9] > 6 || header[12] != 0) {
        return picture;
    }
    uint32_t width = png_get32(header), height = png_get32(header + 4), channels = channels_of[header[9]];
    if (channels == 0 || width == 0 || height == 0 || width > 16384 || height > 16384) {
        return picture;
    }
    packed = (uint8_t*)malloc(size);
    while (packed != NULL && at + 12 <= size) {
        uint32_t length = png_get32(data + at);
        if (length > size - at - 12) {
            break;
        }
        if (memcmp(data + at + 4, "IDAT", 4) == 0) {
            memcpy(packed + packed_size, data + at + 8, length);
            packed_size += length;
        } else if (memcmp(data + at + 4, "PLTE", 4) == 0) {
            palette = data + at + 8;
            palette_size = length / 3;
        }
        at += 12 + (size_t)length;
    }
    size_t row = (size_t)width * channels, room = (row + 1) * height;
    rows = (uint8_t*)malloc(room);
    int indexed = header[9] == 3;
    uint32_t out_channels = indexed ? 3 : channels;
    if (packed != NULL && rows != NULL && packed_size > 2 && inflate_all(packed, packed_size, rows, room) &&
        png_unfilter(rows, row, height, channels) && (!indexed || palette != NULL)) {
        picture.pixels = (uint8_t*)malloc((size_t)width * height * out_channels);
    }
    for (size_t y = 0; picture.pixels != NULL && y < height; y++) {
        const uint8_t* line = rows + y * (row + 1) + 1;
        uint8_t* to = picture.pixels + y * width * out_channels;
        if (!indexed) {
            memcpy(to, line, row);
            continue;
        }
        for (size_t x = 0; x < width; x++) {
            size_t entry = line[x] < palette_size ? line[x] : 0;
            memcpy(to + 3 * x, palette + 3 * entry, 3);
        }
    }
    free(rows);
    free(packed);
    picture.width = width;
    picture.height = height;
    picture.channels = out_channels;
    return picture;
}

/* The next number of a PPM header, comments skipped. */
static uint32_t ppm_number(const uint8_t* data, size_t size, size_t* at) {
    uint32_t value = 0;
    while (*at < size && (data[*at] < '0' || data[*at] > '9')) {
        if (data[*at] == '#') {
            while (*at < size && data[*at] != '\n') {
                (*at)++;
            }
        }
        *at += *at < size;
    }
    while (*at < size && data[*at] >= '0' && data[*at] <= '9' && value < 100000) {
        value = value * 10 + (uint32_t)(data[(*at)++] - '0');
    }
    return value;
}

static picture_t ppm_decode(const uint8_t* data, size_t size) {
    picture_t picture = {0, 0, data[1] == '6' ? 3u : 1u, NULL};
    size_t at = 2, bytes;
    picture.width = ppm_number(data, size, &at);
    picture.height = ppm_number(data, size, &at);
    uint32_t most = ppm_number(data, size, &at);
    at++;
    bytes = (size_t)picture.width * picture.height * picture.channels;
    if (most == 255 && bytes > 0 && picture.width <= 16384 && picture.height <= 16384 && at <= size &&
        size - at >= bytes) {
        picture.pixels = (uint8_t*)malloc(bytes);
        if (picture.pixels != NULL) {
            memcpy(picture.pixels, data + at, bytes);
        }
    }
    return picture;
}

/* Reads a picture; `pixels` is NULL when there is none that can be read. Free `pixels`. */
static inline picture_t picture_read(const char* path) {
    picture_t none = {0, 0, 0, NULL};
    size_t size = 0;
    uint8_t* data = read_file(path, &size);
    if (data == NULL) {
        return none;
    }
    if (size > 8 && memcmp(data, PNG_SIGNATURE, 8) == 0) {
        none = png_decode(data, size);
    } else if (size > 8 && data[0] == 'P' && (data[1] == '5' || data[1] == '6')) {
        none = ppm_decode(data, size);
    }
    free(data);
    return none;
}

#endif
