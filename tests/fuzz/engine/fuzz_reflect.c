/* A reflector with little room fed datagrams, known senders, stamps and assessments as the input says: nothing out of
 * bounds, each datagram answered or refused and counted once, an answer as long as its probe. */
#include <stdlib.h>
#include <string.h>

#include "reflector.h"

enum { MOST = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t octets);

typedef struct feed {
    const uint8_t *at, *end;
} feed;

static uint8_t next(feed *from)
{
    return from->at < from->end ? *from->at++ : 0;
}

/* One of few addresses, so that sessions meet. */
static void an_address(feed *from, uint8_t *address)
{
    memset(address, 0, PE_ADDRESS_OCTETS);
    uint8_t kind = next(from);
    address[10] = address[11] = kind & 0x40 ? 0 : 0xFF;
    address[12] = kind & 0x80 ? kind : 10;
    address[15] = kind & 7;
}

static pe_reflector *made(feed *from)
{
    uint8_t how = next(from);
    static const uint8_t KEY[4] = "key";
    uint8_t own[2 * PE_ADDRESS_OCTETS];
    an_address(from, own);
    an_address(from, own + PE_ADDRESS_OCTETS);
    pe_reflector_config config = {
        .limits = {.max_pps = how & 1 ? 30 : 1e6, .source_pps = how & 2 ? 20 : 1e6, .stranger_pps = 50, .salt = 7,
                   .port = 862, .strangers = (how & 4) != 0, .most_senders = 4, .most_networks = 2, .most_own = 2},
        .sessions = {.capacity = 6, .stranger_rows = 2, .source_rows = 3, .new_per_call = 4},
        .answering = {.classes = ~UINT64_C(2), .sync = 5},
        .most_sockets = 2,
        .error = how & 8 ? PE_PTP : 0,
        .stateful = (how & 16) == 0,
        .liveness_ns = 100000000,
        .key = how & 32 ? KEY : NULL,
        .key_octets = sizeof KEY,
        .own = own,
    };
    pe_reflector *reflector = pe_reflector_new(&config);
    if (reflector != NULL)
        (void)pe_reflector_socket(reflector, 0, 0);
    return reflector;
}

static void know(pe_reflector *reflector, feed *from)
{
    pe_known_sender senders[5];
    pe_network networks[3];
    memset(senders, 0, sizeof senders);
    memset(networks, 0, sizeof networks);
    uint32_t count = next(from) % 6, inside = next(from) % 4;
    for (uint32_t i = 0; i < count; i++) {
        an_address(from, senders[i].address);
        senders[i].nic = next(from) % 3;
        senders[i].port = next(from);
    }
    for (uint32_t i = 0; i < inside; i++) {
        an_address(from, networks[i].network);
        memset(networks[i].mask, 0xFF, next(from) % 17);
    }
    if (pe_reflector_know(reflector, senders, count, networks, inside) != (count <= 4 && inside <= 2))
        abort();
}

static uint64_t all_refused(const pe_reflector *reflector)
{
    const pe_reflector_counts *counts = pe_reflector_counted(reflector);
    uint64_t sum = 0;
    for (unsigned i = 0; i < PE_REASONS; i++)
        sum += i == PE_TLV_INTEGRITY || i == PE_TLV_MALFORMED ? 0 : counts->refused[i];
    return sum;
}

static void reflect(pe_reflector *reflector, feed *from, int64_t now_ns)
{
    pe_datagram datagrams[MOST];
    pe_reply replies[MOST];
    uint32_t count = next(from) % (MOST + 1), answered = 0;
    uint64_t refused = all_refused(reflector);
    memset(datagrams, 0, sizeof datagrams);
    for (uint32_t i = 0; i < count; i++) {
        pe_datagram *one = &datagrams[i];
        uint32_t length = next(from);
        an_address(from, one->address);
        one->port = next(from);
        one->socket = next(from) & 3;
        one->tos = next(from);
        one->kind = next(from) & 3;
        one->at_ns = now_ns;
        one->length_octets = length;
        one->room_octets = length - (length > 0 && one->tos == 0xFF);
        one->data = calloc(1, one->room_octets + 1);
        for (uint32_t k = 0; one->data != NULL && k < one->room_octets; k++)
            one->data[k] = next(from);
    }
    uint32_t said = pe_reflect(reflector, datagrams, count, now_ns, replies);
    for (uint32_t i = 0; i < count; i++) {
        if (replies[i].reason == PE_GOOD) {
            answered++;
            pe_seal(reflector, datagrams[i].data, now_ns);
            pe_answer_left(reflector, replies[i].token ^ (next(from) == 9), now_ns, next(from) & 3);
        }
        free(datagrams[i].data);
    }
    if (said != answered || all_refused(reflector) - refused != count - answered)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t octets)
{
    feed from = {.at = input, .end = input + octets};
    pe_reflector *reflector = made(&from);
    int64_t now_ns = 0;
    const pe_inbound_change *changes;
    while (reflector != NULL && from.at < from.end) {
        uint8_t what = next(&from);
        now_ns += (int64_t)(what >> 4) * (what >> 4) * 100000000;
        switch (what & 7) {
        case 0:
            know(reflector, &from);
            break;
        case 1:
            pe_reflector_usable(reflector, 0, (what & 8) != 0, now_ns);
            break;
        case 2: {
            uint32_t count = pe_reflector_assess(reflector, now_ns, (what & 8) != 0, &changes);
            for (uint32_t i = 0; i < count; i++)
                if (pe_reflector_path(reflector, changes[i].path) == NULL)
                    abort();
            break;
        }
        default:
            reflect(reflector, &from, now_ns);
        }
    }
    pe_reflector_free(reflector);
    return 0;
}
