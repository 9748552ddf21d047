#include "pe_runner_duty.h"

#include <time.h>

#include "pe_report.h"

#define SECOND_NS 1000000000
#define SLICE_NS 100000000 /* a signal may be delivered to another thread, so sleep in slices */

/* Attempts to read a file, a second apart: a busy sensor returns EAGAIN. */
#define LOOKS 3

/* Hysteresis of a pause in degrees, or points of battery: without it a training would stop and
 * go at each step. */
#define BETTER 5

static const pe_quantity temperature = {
    .kind = "temperature",
    .option = "thermal",
    .unit = "C",
    .scale = 1000,
    .least = -100,
    .most = 300,
    .folder = "/sys/class/thermal",
    .item = "thermal_zone",
    .name = "temp",
};
static const pe_quantity battery = {
    .kind = "charge",
    .option = "battery",
    .unit = "%",
    .scale = 1,
    .most = 100,
    .folder = "/sys/class/power_supply",
    .item = "",
    .name = "capacity",
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

static void sleep_until(const pe_duty *duty, int64_t end) {
    for (int64_t left = end - now_ns(); left > 0 && !*duty->signaled; left = end - now_ns()) {
        nanosleep(&(struct timespec){.tv_nsec = (long)(left < SLICE_NS ? left : SLICE_NS)}, NULL);
    }
}

static pe_status watch(pe_duty *duty, const pe_gauge *gauge, const char *path, char *message) {
    double value;
    pe_gauge *own = &duty->gauges[duty->gauge_count++];
    *own = *gauge;
    const pe_status status = pe_gauge_open(own, path, &value, message);
    if (status == PE_OK) {
        pe_print_gauge(own, value);
    }
    return status;
}

pe_status pe_duty_begin(pe_duty *duty, const pe_options *o, char *message) {
    const int64_t most = battery.most;
    const int64_t charged = o->pause_below + BETTER < most ? o->pause_below + BETTER : most;
    pe_status status = PE_OK;
    duty->percent = o->duty > 0 ? o->duty : 100;
    if (o->pause_above > 0) {
        const pe_gauge gauge = {&temperature, true, o->pause_above, o->pause_above - BETTER, ""};
        status = watch(duty, &gauge, o->thermal, message);
    }
    if (status == PE_OK && o->pause_below > 0) {
        const pe_gauge gauge = {&battery, false, o->pause_below, charged, ""};
        status = watch(duty, &gauge, o->battery, message);
    }
    return status;
}

static bool is_beyond(const pe_gauge *gauge, double value, int64_t limit) {
    return gauge->above ? value > (double)limit : value < (double)limit;
}

/* Reads a gauge; retries on failure. */
static pe_status look(const pe_duty *duty, const pe_gauge *gauge, double *value, char *message) {
    pe_status status = pe_gauge_read(gauge, value, message);
    for (int i = 1; i < LOOKS && status != PE_OK && !*duty->signaled; i++) {
        sleep_until(duty, now_ns() + SECOND_NS);
        status = pe_gauge_read(gauge, value, message);
    }
    return status;
}

/* Waits while a gauge requires it; checks each second. */
static pe_status pause_by(const pe_duty *duty, const pe_gauge *gauge, int64_t after,
                          char *message) {
    const int64_t begin = now_ns();
    double value;
    pe_status status = look(duty, gauge, &value, message);
    if (status != PE_OK || *duty->signaled || !is_beyond(gauge, value, gauge->pause)) {
        return status;
    }
    pe_print_pause(gauge, value, after);
    while (status == PE_OK && !*duty->signaled && is_beyond(gauge, value, gauge->go_on)) {
        sleep_until(duty, now_ns() + SECOND_NS);
        status = look(duty, gauge, &value, message);
    }
    if (status == PE_OK && !*duty->signaled) {
        pe_print_end_of_pause(after, now_ns() - begin);
    }
    return status;
}

pe_status pe_duty_rest(pe_duty *duty, int64_t after, char *message) {
    const int64_t now = now_ns();
    const int64_t busy = duty->begun_ns > 0 ? now - duty->begun_ns : 0;
    pe_status status = PE_OK;
    sleep_until(duty, now + busy * (100 - duty->percent) / duty->percent);
    for (int i = 0; status == PE_OK && i < duty->gauge_count; i++) {
        status = pause_by(duty, &duty->gauges[i], after, message);
    }
    duty->begun_ns = now_ns();
    return *duty->signaled ? PE_OK : status;
}
