#define _GNU_SOURCE
#include "control_messages.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define HEADER_OCTETS sizeof(struct cmsghdr)
#define SCM_STAMP_OLD 37 /* SCM_TIMESTAMPING: software, unused, hardware timespec; _NEW is the same on 64 bits */
#define SCM_STAMP_NEW 65

_Static_assert(sizeof(struct cmsghdr) == 16, "control messages are laid out for 64-bit Linux");

typedef enum field { NOTHING, STAMP, PKTINFO4, PKTINFO6, TTL, TOS, ERROR } field;

/* What a message is, if it is long enough for that. */
static field field_of(const struct cmsghdr *header, size_t payload_octets)
{
    static const struct {
        int level, type;
        field field;
        size_t least_octets;
    } KNOWN[] = {
        {SOL_SOCKET, SCM_STAMP_OLD, STAMP, 48}, {SOL_SOCKET, SCM_STAMP_NEW, STAMP, 48},
        {IPPROTO_IP, IP_PKTINFO, PKTINFO4, 12}, {IPPROTO_IPV6, IPV6_PKTINFO, PKTINFO6, 20},
        {IPPROTO_IP, IP_TTL, TTL, 4},           {IPPROTO_IPV6, IPV6_HOPLIMIT, TTL, 4},
        {IPPROTO_IP, IP_TOS, TOS, 1},           {IPPROTO_IPV6, IPV6_TCLASS, TOS, 4},
        {IPPROTO_IP, IP_RECVERR, ERROR, 16},    {IPPROTO_IPV6, IPV6_RECVERR, ERROR, 16},
    };
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++)
        if (KNOWN[i].level == header->cmsg_level && KNOWN[i].type == header->cmsg_type)
            return payload_octets >= KNOWN[i].least_octets ? KNOWN[i].field : NOTHING;
    return NOTHING;
}

/* Software stamp in the first timespec, hardware in the third (timestamping.rst); never both by our options. */
static void read_stamp(const uint8_t *payload, pe_control *out)
{
    uint64_t words[6]; /* unsigned: nonsense wraps around, as in numpy */
    memcpy(words, payload, sizeof words);
    int64_t software_ns = (int64_t)(words[0] * (uint64_t)PE_NS_PER_S + words[1]);
    int64_t hardware_ns = (int64_t)(words[4] * (uint64_t)PE_NS_PER_S + words[5]);
    int64_t at_ns = hardware_ns ? hardware_ns : software_ns;
    out->at_ns = at_ns ? at_ns : PE_ABSENT_NS;
    out->kind = !at_ns ? PE_KIND_USER : hardware_ns ? PE_KIND_HARDWARE : PE_KIND_KERNEL;
}

static void read_field(field is, const uint8_t *payload, size_t at, pe_control *out)
{
    switch (is) {
    case STAMP:
        read_stamp(payload, out);
        break;
    case PKTINFO4: /* interface, address of ours, destination in the header */
        memcpy(&out->interface, payload, 4);
        memset(out->destination + 10, 0xFF, 2);
        memcpy(out->destination + 12, payload + 8, 4);
        break;
    case PKTINFO6:
        memcpy(out->destination, payload, PE_ADDRESS_OCTETS);
        memcpy(&out->interface, payload + PE_ADDRESS_OCTETS, 4);
        break;
    case TTL:
        out->ttl = payload[0];
        break;
    case TOS:
        out->tos = payload[0];
        break;
    case ERROR:
        out->error_at = (uint32_t)at;
        break;
    case NOTHING:
        break;
    }
}

bool pe_control_read(const uint8_t *control, size_t octets, pe_control *out)
{
    const pe_control blank = {.at_ns = PE_ABSENT_NS, .kind = PE_KIND_USER};
    unsigned seen = 0;
    *out = blank;
    for (size_t at = 0; at + HEADER_OCTETS <= octets;) {
        struct cmsghdr header;
        memcpy(&header, control + at, sizeof header);
        if (header.cmsg_len < HEADER_OCTETS || header.cmsg_len > octets - at) {
            *out = blank;
            return false;
        }
        field is = field_of(&header, header.cmsg_len - HEADER_OCTETS);
        if (!(seen >> is & 1))
            read_field(is, control + at + HEADER_OCTETS, at + HEADER_OCTETS, out);
        seen |= 1u << is;
        at += (header.cmsg_len + 7) & ~(size_t)7;
    }
    return true;
}

uint32_t pe_control_add_ttl(uint8_t *control, uint32_t octets, bool v6, uint8_t ttl)
{
    struct cmsghdr header = {.cmsg_len = HEADER_OCTETS + sizeof(int),
                             .cmsg_level = v6 ? IPPROTO_IPV6 : IPPROTO_IP,
                             .cmsg_type = v6 ? IPV6_HOPLIMIT : IP_TTL};
    int value = ttl;
    memset(control + octets, 0, PE_CONTROL_TTL_OCTETS);
    memcpy(control + octets, &header, sizeof header);
    memcpy(control + octets + sizeof header, &value, sizeof value);
    return octets + PE_CONTROL_TTL_OCTETS;
}
