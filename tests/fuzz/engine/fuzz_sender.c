/* The sending engine under any order of commands, packets, stamps and times: nothing out of bounds, and laws that hold
 * whatever comes. The input is a script: an octet for what is done, and a few octets of arguments. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "packet.h"

#define PATHS 6
#define KEPT 64
#define WIDTH 176

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t octets);

typedef struct script {
    const uint8_t *at, *end;
} script;

static uint32_t take(script *script, unsigned octets)
{
    uint32_t value = 0;
    for (; octets > 0 && script->at < script->end; octets--)
        value = value << 8 | *script->at++;
    return value;
}

typedef struct world {
    pe_t *pe;
    int64_t now_ns, system_ns;
    pe_out out[PATHS];
    uint8_t sent[PATHS][WIDTH];
    pe_out kept[KEPT]; /* what was sent lately */
    uint8_t kept_data[KEPT][WIDTH];
    uint32_t n;
    uint64_t rows;
} world;

static void require(int holds)
{
    if (!holds)
        abort();
}

static void begin_path(world *world, script *script)
{
    static const int64_t INTERVALS[] = {1000000, 10000000, 62500000, 1000000000};
    pe_path is = {.interval_ns = INTERVALS[take(script, 1) % 4], .liveness_ns = take(script, 1) * INT64_C(1000000)};
    uint32_t path = take(script, 1) % (PATHS + 1);
    is.socket = take(script, 1) % 3;
    is.ssid = (uint16_t)(take(script, 1) % 4);
    is.port = 862;
    is.nic = (uint16_t)(take(script, 1) % 3);
    is.step = (uint16_t)(take(script, 1) % 3);
    is.generation = (uint16_t)(take(script, 1) % 3);
    is.length_octets = take(script, 1) % (WIDTH + 1);
    (void)pe_path_begin(world->pe, path, &is);
}

static void probe(world *world)
{
    for (uint32_t i = 0; i < PATHS; i++)
        world->out[i] = (pe_out){.data = world->sent[i], .room_octets = WIDTH};
    uint32_t n = pe_due(world->pe, world->now_ns, world->now_ns, world->system_ns, world->out, PATHS);
    require(n <= PATHS);
    for (uint32_t i = 0; i < n; i++, world->n++) {
        require(i == 0 || world->out[i - 1].socket <= world->out[i].socket);
        require(world->out[i].length_octets <= WIDTH);
        world->kept[world->n % KEPT] = world->out[i];
        memcpy(world->kept_data[world->n % KEPT], world->sent[i], WIDTH);
    }
}

/* An answer made of a probe that was sent, or of noise, then damaged as the script says. */
static void answer(world *world, script *script)
{
    const pe_out *probe = &world->kept[take(script, 1) % KEPT];
    const uint8_t *sent = world->kept_data[probe - world->kept];
    uint8_t *data = malloc(WIDTH);
    require(data != NULL);
    memcpy(data, sent, WIDTH);
    memcpy(data + 24, sent, 4);     /* sequence number of the probe */
    memcpy(data + 28, sent + 4, 8); /* its t1 */
    memcpy(data + 16, sent + 4, 8); /* t2 */
    data[44] &= 0x7F;
    for (uint32_t n = take(script, 1) % 4; n > 0; n--) {
        uint32_t at = take(script, 1) % WIDTH; /* the order of evaluation of an assignment's sides is open */
        data[at] = (uint8_t)take(script, 1);
    }
    pe_datagram datagram = {.data = data, .length_octets = probe->length_octets, .room_octets = WIDTH,
                            .socket = probe->socket, .port = probe->port, .kind = (uint8_t)take(script, 1),
                            .at_ns = world->system_ns, .user_at_ns = world->system_ns};
    memcpy(datagram.address, probe->address, sizeof datagram.address);
    if (datagram.kind > 3)
        datagram.kind = PE_KIND_NONE;
    int reason = pe_take_answer(world->pe, &datagram, world->now_ns, world->system_ns);
    require(reason >= 0 && reason < PE_REASONS);
    if (reason == PE_GOOD) /* a copy is known as one */
        require(pe_take_answer(world->pe, &datagram, world->now_ns, 0) == PE_DUPLICATE);
    free(data);
}

static void watch(world *world, script *script)
{
    uint32_t numbers[4];
    for (unsigned i = 0; i < 4; i++)
        numbers[i] = take(script, 1) % (PATHS + 1);
    (void)pe_watch_begin(world->pe);
    (void)pe_segment(world->pe, numbers, take(script, 1) % 5);
    (void)pe_segment(world->pe, numbers + 1, 1);
    (void)pe_route(world->pe, numbers[0], (const uint32_t[]){0, 1}, numbers[3] % 3);
    (void)pe_route(world->pe, numbers[2], (const uint32_t[]){1}, 1);
    (void)pe_watch_commit(world->pe);
    (void)pe_order_arm(world->pe, numbers[1] % 3, numbers[2] % 4, numbers, numbers[3] % 3);
}

static void turn(world *world)
{
    uint64_t first, events, rows;
    (void)pe_apply(world->pe, world->now_ns);
    (void)pe_assess(world->pe, world->now_ns, world->system_ns);
    require(pe_next_assess_ns(world->pe) > world->now_ns);
    world->rows += pe_finish(world->pe, world->now_ns);
    rows = pe_take(world->pe, &first);
    require(rows <= 16);
    pe_done(world->pe, first + rows);
    events = pe_take_events(world->pe, &first);
    require(events <= 16);
    pe_done_events(world->pe, first + events / 2);
    probe(world);
    require(pe_next_due_ns(world->pe) > world->now_ns);
}

static void step(world *world, script *script)
{
    const pe_out *probe = &world->kept[take(script, 1) % KEPT];
    int64_t ms;
    switch (take(script, 1) % 9) {
    case 0:
        begin_path(world, script);
        break;
    case 1:
        (void)pe_path_end(world->pe, take(script, 1) % PATHS);
        break;
    case 2:
        (void)pe_nic_usable(world->pe, take(script, 1) % 3, take(script, 1) & 1);
        break;
    case 3:
        pe_take_stamp(world->pe, probe->token ^ take(script, 1) % 2, world->system_ns, take(script, 1) & 3,
                      world->system_ns);
        break;
    case 4:
        pe_unsent(world->pe, probe->token);
        break;
    case 5:
        watch(world, script);
        break;
    case 6:
        answer(world, script);
        break;
    case 7:
        world->system_ns += ((int64_t)take(script, 1) - 128) * 100000000;
        break;
    default:
        ms = take(script, 1);
        world->now_ns += ms * ms * 10000;
        world->system_ns += ms * ms * 10000;
        turn(world);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t octets)
{
    pe_config config = {.octets = sizeof config, .most_paths = PATHS, .most_exchanges = 4096, .row_capacity = 16,
                        .event_capacity = 16, .most_hosts = 1, .most_nics = 2, .most_segments = 2, .most_routes = 4,
                        .most_links = 8, .most_orders = 2, .command_words = 4096, .width_octets = WIDTH, .error = 1,
                        .key_octets = octets && input[0] & 1 ? 3 : 0, .key = {1, 2, 3}, .seed = octets};
    size_t shared_octets = pe_shared_octets(&config);
    void *shared = aligned_alloc(64, shared_octets);
    world *world = calloc(1, sizeof *world);
    require(shared != NULL && world != NULL);
    world->pe = pe_new(&config, shared, shared_octets);
    require(world->pe != NULL);
    world->now_ns = INT64_C(1000000000000);
    world->system_ns = INT64_C(1790000000000000000);
    script script = {.at = input, .end = input + octets};
    for (uint32_t path = 0; path < PATHS; path++) {
        pe_path is = {.interval_ns = 10000000, .liveness_ns = 30000000, .socket = path % 3, .port = 862,
                      .ssid = (uint16_t)(path + 1), .length_octets = config.key_octets ? 168 : 80};
        (void)pe_path_begin(world->pe, path, &is);
    }
    while (script.at < script.end)
        step(world, &script);
    uint64_t counters[PE_N_REFUSED];
    (void)pe_stats(world->pe, counters, PE_N_REFUSED);
    require(counters[PE_N_ROWS] + counters[PE_N_ROWS_DROPPED] == world->rows);
    require(world->rows + counters[PE_N_UNSENT] <= counters[PE_N_SENT]);
    require(counters[PE_N_SENT] == world->n);
    pe_free(world->pe);
    free(world);
    free(shared);
    return 0;
}
