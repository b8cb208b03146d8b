#include "rates.h"

#include <string.h>

#include "datagram.h"

#define BURST 0.1 /* a bucket holds a tenth of a second's packets */

static double burst_of(double pps)
{
    double burst = pps * BURST;
    return burst > 1.0 ? burst : 1.0;
}

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

/* Packets that a rate allows in a time, none for a clock that went back. */
static double fill_of(double pps, int64_t elapsed_ns)
{
    return elapsed_ns > 0 ? (double)elapsed_ns * pps / 1e9 : 0.0;
}

void pe_bucket_begin(pe_bucket *bucket, double pps)
{
    bucket->pps = pps;
    bucket->allowance = bucket->burst = burst_of(pps);
    bucket->filled_at_ns = PE_ABSENT_NS;
}

uint32_t pe_bucket_granted(pe_bucket *bucket, uint32_t wanted, int64_t now_ns)
{
    if (bucket->filled_at_ns != PE_ABSENT_NS) {
        double fill = fill_of(bucket->pps, now_ns - bucket->filled_at_ns);
        bucket->allowance = lesser(bucket->burst, bucket->allowance + fill);
    }
    bucket->filled_at_ns = now_ns;
    uint32_t granted = bucket->allowance < (double)wanted ? (uint32_t)bucket->allowance : wanted;
    bucket->allowance -= granted;
    return granted;
}

void pe_source_buckets_begin(pe_source_buckets *buckets, double pps, uint64_t salt)
{
    buckets->pps = pps;
    buckets->burst = burst_of(pps);
    buckets->salt = salt;
    pe_source_buckets_resize(buckets, 0);
}

static uint32_t all_of(const pe_source_buckets *buckets)
{
    return buckets->own + PE_SHARED_BUCKETS;
}

void pe_source_buckets_resize(pe_source_buckets *buckets, uint32_t own)
{
    buckets->own = own;
    for (uint32_t i = 0; i < all_of(buckets); i++)
        buckets->allowance[i] = buckets->burst;
    memset(buckets->unbooked, 0, all_of(buckets) * sizeof buckets->unbooked[0]);
    buckets->filled_at_ns = PE_ABSENT_NS;
    buckets->sure = (int64_t)buckets->burst;
}

uint32_t pe_shared_bucket(const pe_source_buckets *buckets, uint64_t address_key)
{
    uint64_t mixed = (address_key ^ buckets->salt) * UINT64_C(0x9E3779B97F4A7C15);
    return buckets->own + (uint32_t)(mixed >> 52);
}

/* Take what has passed out of the buckets, then fill them up to now. */
static void book(pe_source_buckets *buckets, int64_t now_ns)
{
    double fill = fill_of(buckets->pps, now_ns - buckets->filled_at_ns);
    for (uint32_t i = 0; i < all_of(buckets); i++) {
        double allowance = buckets->allowance[i] - buckets->unbooked[i];
        buckets->allowance[i] = lesser(buckets->burst, allowance + fill);
        buckets->unbooked[i] = 0;
    }
    buckets->filled_at_ns = now_ns;
}

bool pe_source_all_granted(pe_source_buckets *buckets, uint32_t wanted, int64_t now_ns)
{
    if (buckets->filled_at_ns == PE_ABSENT_NS)
        buckets->filled_at_ns = now_ns;
    buckets->sure -= wanted;
    if (buckets->sure >= 0)
        return true;
    book(buckets, now_ns);
    return false;
}

void pe_source_passed(pe_source_buckets *buckets, uint32_t bucket)
{
    buckets->unbooked[bucket]++;
}

bool pe_source_granted(pe_source_buckets *buckets, uint32_t bucket)
{
    if (buckets->allowance[bucket] < 1.0)
        return false;
    buckets->allowance[bucket] -= 1.0;
    return true;
}

void pe_source_done(pe_source_buckets *buckets)
{
    double least = buckets->burst;
    for (uint32_t i = 0; i < all_of(buckets); i++)
        least = lesser(least, buckets->allowance[i]);
    buckets->sure = (int64_t)least;
}
