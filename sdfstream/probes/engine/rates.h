/* Token buckets: packets per second of all senders together, and of each sender (stamp/rates.py). */
#ifndef PE_RATES_H
#define PE_RATES_H

#include <stdbool.h>
#include <stdint.h>

#define PE_SHARED_BUCKETS 4096u

/* At most `pps` packets per second, in bursts of a tenth of that; full at first. */
typedef struct pe_bucket {
    double pps, burst, allowance;
    int64_t filled_at_ns;
} pe_bucket;

void pe_bucket_begin(pe_bucket *bucket, double pps);

/* How many of `wanted` packets pass. */
uint32_t pe_bucket_granted(pe_bucket *bucket, uint32_t wanted, int64_t now_ns);

/* A bucket of `pps` for each of some senders, and PE_SHARED_BUCKETS for all others, so that memory does not grow with
 * the number of senders.
 *
 * Packets are booked together: as long as all packets since the last booking are no more than the emptiest bucket had,
 * none can be over, whosever they are. */
typedef struct pe_source_buckets {
    double pps, burst;
    uint64_t salt;       /* keeps strangers from choosing whose shared bucket they empty */
    double *allowance;   /* one a bucket, `own` first */
    uint32_t *unbooked;  /* packets since the last booking */
    uint32_t own;
    int64_t sure;        /* packets that pass in any bucket */
    int64_t filled_at_ns;
} pe_source_buckets;

/* `allowance` and `unbooked` are there, with room for PE_SHARED_BUCKETS and `own` of the largest resize. */
void pe_source_buckets_begin(pe_source_buckets *buckets, double pps, uint64_t salt);

/* From now on `own` senders have a bucket of their own; every bucket is full. */
void pe_source_buckets_resize(pe_source_buckets *buckets, uint32_t own);

/* The bucket of a sender without one of its own, by a hash of its address. */
uint32_t pe_shared_bucket(const pe_source_buckets *buckets, uint64_t address_key);

/* Book a call's packets, `wanted` of them in all. True: all pass. False: each is to be asked for by
 * `pe_source_granted`, in order, and then `pe_source_done` is to be called. */
bool pe_source_all_granted(pe_source_buckets *buckets, uint32_t wanted, int64_t now_ns);
void pe_source_passed(pe_source_buckets *buckets, uint32_t bucket); /* all pass: one of them */
bool pe_source_granted(pe_source_buckets *buckets, uint32_t bucket);
void pe_source_done(pe_source_buckets *buckets);

#endif
