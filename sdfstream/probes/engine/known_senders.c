#include "known_senders.h"

#include <string.h>

static const uint8_t MAPPED[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}; /* IPv4 as ::ffff:a.b.c.d */

uint64_t pe_address_key(const uint8_t address[PE_ADDRESS_OCTETS], uint64_t extra)
{
    uint64_t words[2];
    memcpy(words, address, sizeof words);
    uint64_t key = (words[0] ^ (extra * UINT64_C(0x165667B19E3779F9))) * UINT64_C(0x9E3779B97F4A7C15);
    key ^= key >> 29;
    key = (key ^ words[1]) * UINT64_C(0xC2B2AE3D27D4EB4F);
    return key ^ (key >> 32);
}

/* A power of two, at least twice as many as there are senders: a search meets an empty slot soon. */
static uint32_t slots_for(uint32_t senders)
{
    uint32_t slots = 4;
    while (slots < 2 * senders)
        slots *= 2;
    return slots;
}

void pe_known_senders_carve(pe_known_senders *known, pe_arena *arena, const pe_reflector_limits *limits)
{
    size_t buckets = (size_t)limits->most_senders + PE_SHARED_BUCKETS;
    uint32_t slots = slots_for(limits->most_senders);
    known->limits = *limits;
    known->slots = pe_carve(arena, slots, sizeof known->slots[0]);
    known->senders = pe_carve(arena, limits->most_senders, sizeof known->senders[0]);
    known->networks = pe_carve(arena, limits->most_networks, sizeof known->networks[0]);
    known->own = pe_carve(arena, limits->most_own, PE_ADDRESS_OCTETS);
    known->sources.allowance = pe_carve(arena, buckets, sizeof known->sources.allowance[0]);
    known->sources.unbooked = pe_carve(arena, buckets, sizeof known->sources.unbooked[0]);
}

void pe_known_senders_clear(pe_known_senders *known, const uint8_t *own)
{
    const pe_reflector_limits *limits = &known->limits;
    known->count = known->network_count = 0;
    known->slots_mask = slots_for(0) - 1;
    known->own_count = limits->most_own;
    if (limits->most_own > 0)
        memcpy(known->own, own, (size_t)limits->most_own * PE_ADDRESS_OCTETS);
    pe_source_buckets_begin(&known->sources, limits->source_pps, limits->salt);
    pe_bucket_begin(&known->strangers, limits->stranger_pps);
}

/* The slot where an address lies, or would. Strangers choose addresses, and cannot choose slots: salted. */
static uint32_t slot_of(const pe_known_senders *known, const uint8_t *address)
{
    uint64_t key = pe_address_key(address, known->limits.salt);
    uint32_t slot = (uint32_t)key & known->slots_mask;
    while (known->slots[slot] != 0 &&
           memcmp(known->senders[known->slots[slot] - 1].address, address, PE_ADDRESS_OCTETS) != 0)
        slot = (slot + 1) & known->slots_mask;
    return slot;
}

static const pe_known_sender *find(const pe_known_senders *known, const uint8_t *address)
{
    uint32_t found = known->slots[slot_of(known, address)];
    return found == 0 ? NULL : &known->senders[found - 1];
}

bool pe_know_senders(pe_known_senders *known, const pe_known_sender *senders, uint32_t count,
                     const pe_network *networks, uint32_t network_count)
{
    if (count > known->limits.most_senders || network_count > known->limits.most_networks)
        return false;
    known->slots_mask = slots_for(count) - 1;
    memset(known->slots, 0, ((size_t)known->slots_mask + 1) * sizeof known->slots[0]);
    known->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = slot_of(known, senders[i].address);
        if (known->slots[slot] != 0)
            continue; /* of two with one address the first counts */
        known->senders[known->count] = senders[i];
        known->slots[slot] = ++known->count;
    }
    known->network_count = network_count;
    if (network_count > 0)
        memcpy(known->networks, networks, network_count * sizeof networks[0]);
    pe_source_buckets_resize(&known->sources, known->count);
    return true;
}

uint32_t pe_nic_of_sender(const pe_known_senders *known, const uint8_t address[PE_ADDRESS_OCTETS])
{
    const pe_known_sender *sender = find(known, address);
    return sender == NULL ? PE_NO_NIC : sender->nic;
}

static bool is_in_networks(const pe_known_senders *known, const uint8_t *address)
{
    for (uint32_t n = 0; n < known->network_count; n++) {
        const pe_network *one = &known->networks[n];
        bool inside = true;
        for (unsigned i = 0; i < PE_ADDRESS_OCTETS; i++)
            inside &= (address[i] & one->mask[i]) == one->network[i];
        if (inside)
            return true;
    }
    return false;
}

static bool is_own(const pe_known_senders *known, const uint8_t *address)
{
    for (uint32_t i = 0; i < known->own_count; i++)
        if (memcmp(known->own + (size_t)i * PE_ADDRESS_OCTETS, address, PE_ADDRESS_OCTETS) == 0)
            return true;
    return false;
}

/* An address of one host: not multicast, broadcast, reserved or unspecified; loopback's own only there. */
static bool is_one_hosts(const uint8_t *address, bool on_loopback)
{
    uint8_t first = address[12], last = address[15];
    if (memcmp(address, MAPPED, sizeof MAPPED) == 0)
        return !(first == 0 || first >= 224 || (first == 127 && !on_loopback));
    for (unsigned i = 0; i < 15; i++)
        if (address[i] != 0)
            return address[0] != 0xFF;
    return last != 0 && on_loopback; /* :: and ::0.0.0.x; ::1 is loopback's */
}

pe_admission pe_admit(const pe_known_senders *known, const uint8_t address[PE_ADDRESS_OCTETS], uint16_t port)
{
    const pe_known_sender *sender = find(known, address);
    uint16_t reflects_at = sender == NULL ? 0 : sender->port;
    pe_admission admission = {.reason = PE_GOOD};
    if (sender == NULL) {
        admission.stranger = !is_in_networks(known, address);
        admission.bucket = pe_shared_bucket(&known->sources, pe_address_key(address, 0));
    } else {
        admission.bucket = (uint32_t)(sender - known->senders);
    }
    if (port == known->limits.port || port == PE_WELL_KNOWN_PORT || port == reflects_at)
        admission.reason = PE_REFLECTOR_PORT;
    else if (sender == NULL && is_own(known, address))
        admission.reason = PE_OWN_ADDRESS;
    else if (sender == NULL && !is_one_hosts(address, known->limits.on_loopback))
        admission.reason = PE_NO_HOST;
    else if (admission.stranger && !known->limits.strangers)
        admission.reason = PE_STRANGER;
    return admission;
}
