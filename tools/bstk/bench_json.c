/* bench_json.c: the results in google-benchmark's shape. */
#include "bench.h"

#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Problem strings and command lines may hold anything: quotes, backslashes and control characters are escaped. */
static void put_string(FILE *f, const char *text) {
    fputc('"', f);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(f, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(f, "\\u%04x", *c);
        else
            fputc(*c, f);
    }
    fputc('"', f);
}

static void put_text(FILE *f, const char *indent, const char *name, const char *text) {
    fprintf(f, "%s\"%s\": ", indent, name);
    put_string(f, text);
    fputs(",\n", f);
}

/* A number, or null where there is none. */
static void put_number(FILE *f, const char *name, double value, bool known) {
    if (known && isfinite(value))
        fprintf(f, "      \"%s\": %.9g,\n", name, value);
    else
        fprintf(f, "      \"%s\": null,\n", name);
}

/* The first line of a file that begins with `key`, what stands behind it; false when there is none. */
static bool read_line(const char *path, const char *key, char *text, size_t size) {
    FILE *f = fopen(path, "r");
    bool found = false;
    while (f && !found && fgets(text, (int)size, f))
        found = strncmp(text, key, strlen(key)) == 0;
    if (f)
        fclose(f);
    if (!found)
        return false;
    text[strcspn(text, "\n")] = '\0';
    const char *value = text + strlen(key);
    value += strspn(value, " \t:");
    memmove(text, value, strlen(value) + 1);
    return true;
}

static void put_caches(FILE *f) {
    char path[96], type[32], level[16], size[32];
    fputs("    \"caches\": [", f);
    for (int i = 0, put = 0; i < 16; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        if (!read_line(path, "", type, sizeof type))
            break;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        const bool has_level = read_line(path, "", level, sizeof level);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        long kib, number;
        if (!has_level || !read_line(path, "", size, sizeof size) || sscanf(size, "%ldK", &kib) != 1 ||
            sscanf(level, "%ld", &number) != 1)
            continue;
        fprintf(f, "%s\n      {\"type\": ", put++ ? "," : "");
        put_string(f, type);
        fprintf(f, ", \"level\": %ld, \"size\": %ld}", number, 1024 * kib);
    }
    fputs("\n    ],\n", f);
}

void bench_cpu(char *name, size_t size) {
    if (!read_line("/proc/cpuinfo", "model name", name, size))
        snprintf(name, size, "unknown");
}

static void put_context(FILE *f, const bench_report *report) {
    char date[32], cpu[256];
    const time_t seconds = time(NULL);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S+00:00", &utc);
    bench_cpu(cpu, sizeof cpu);
    fputs("  \"context\": {\n", f);
    put_text(f, "    ", "date", date);
    put_text(f, "    ", "executable", "bstk");
    put_text(f, "    ", "command", report->command);
    put_text(f, "    ", "cpu", cpu);
    put_text(f, "    ", "compiler", BENCH_COMPILER);
    put_text(f, "    ", "flags", BENCH_FLAGS);
    put_text(f, "    ", "bstk_version", bstk_version());
    put_text(f, "    ", "library_build_type", BENCH_BUILD_TYPE);
    fputs("    \"peers\": {", f);
    const char *name, *text;
    for (int i = 0; (text = bench_peers_text(i, &name)) != NULL; i++) {
        fprintf(f, "%s\n      \"%s\": ", i ? "," : "", name);
        put_string(f, text);
    }
    fputs("},\n", f);
    put_caches(f);
    fprintf(f, "    \"num_cpus\": %ld,\n    \"num_threads\": %d\n  },\n", sysconf(_SC_NPROCESSORS_ONLN),
            report->threads);
}

/* Flat keys for the ratios, as every reader of this shape expects; how they were got, and why some are not there. */
static void put_peers(FILE *f, const bench_result *r) {
    char name[64];
    if (r->checked && r->wrong)
        put_text(f, "      ", "error", r->error);
    if (r->checked)
        fprintf(f, "      \"checked_every\": %lld,\n", (long long)r->check_step);
    for (int i = 0; i < r->ratio_count; i++) {
        const bench_ratio *p = &r->ratios[i];
        snprintf(name, sizeof name, "ratio_%s", p->key);
        put_number(f, name, p->ratio.median, true);
        snprintf(name, sizeof name, "ratio_%s_min", p->key);
        put_number(f, name, p->ratio.least, true);
        snprintf(name, sizeof name, "ratio_%s_max", p->key);
        put_number(f, name, p->ratio.most, true);
    }
    fputs("      \"peers\": {", f);
    for (int i = 0; i < r->ratio_count; i++) {
        fprintf(f, "%s\"%s\": ", i ? ", " : "", r->ratios[i].key);
        put_string(f, r->ratios[i].how);
    }
    fputs("},\n      \"no_ratio\": {", f);
    for (int i = 0, put = 0; i < r->note_count; i++) {
        bool earlier = false; /* two ways with one key: one name, one reason */
        for (int j = 0; j < i; j++)
            earlier = earlier || strcmp(r->notes[j].peer, r->notes[i].peer) == 0;
        if (earlier)
            continue;
        fprintf(f, "%s\"%s\": ", put++ ? ", " : "", r->notes[i].peer);
        put_string(f, r->notes[i].why);
    }
    fputs("},\n", f);
}

static void put_result(FILE *f, const bench_result *r, int index, int threads) {
    const double time = r->seconds.median;
    fputs("    {\n", f);
    put_text(f, "      ", "name", r->problem);
    put_text(f, "      ", "run_name", r->problem);
    put_text(f, "      ", "run_type", "iteration");
    fprintf(f, "      \"family_index\": %d,\n      \"per_family_instance_index\": 0,\n", index);
    fprintf(f, "      \"repetitions\": %d,\n      \"threads\": %d,\n      \"iterations\": %lld,\n", r->repetitions,
            threads, (long long)r->iterations);
    put_number(f, "real_time", 1e9 * r->wall, true);
    put_number(f, "cpu_time", 1e9 * r->cpu, true);
    put_text(f, "      ", "time_unit", "ns");
    put_number(f, "time_min", 1e9 * r->seconds.least, true);
    put_number(f, "time_max", 1e9 * r->seconds.most, true);
    put_number(f, "useful_gflops", 1e-9 * r->flops / time, r->flops > 0);
    put_number(f, "gbytes_per_s", 1e-9 * r->bytes / time, true);
    put_text(f, "      ", "roof", r->of_copy ? "copy" : r->loop);
    put_number(f, "roof_share", r->share.median, r->share.most > 0);
    put_number(f, "roof_share_min", r->share.least, r->share.most > 0);
    put_number(f, "roof_share_max", r->share.most, r->share.most > 0);
    put_number(f, "fma_share", r->loop_share, r->flops > 0);
    put_number(f, "fma_gflops", 1e-9 * r->roof_flops, true);
    put_number(f, "copy_gbytes_per_s", 1e-9 * r->roof_bytes, r->of_copy);
    put_number(f, "clock_ghz", 1e-9 * r->hertz, true);
    put_number(f, "cycles_per_16_elements", r->cycles_per_16, r->of_copy);
    put_peers(f, r);
    fputs("      \"kernel\": ", f);
    put_string(f, r->kernel);
    fputs("\n    }", f);
}

void bench_json(FILE *f, const bench_report *report) {
    fputs("{\n", f);
    put_context(f, report);
    fputs("  \"benchmarks\": [", f);
    for (int i = 0; i < report->count; i++) {
        fputs(i ? ",\n" : "\n", f);
        put_result(f, &report->results[i], i, report->threads);
    }
    fputs("\n  ]\n}\n", f);
}
