#include "congestion.h"

#define G (1.0 / 8)
#define FIRST 10.0
#define LEAST 2.0
#define MOST 400.0

#define OVERHEAD_OCTETS (14 + 20 + 8)
#define BURST_NS 8000000
#define FLOOR_OCTETS 3100.0
#define NS_PER_S 1e9

#define LEAST_TIME_OUT_NS (30 * JE_NS_PER_MS)
#define MOST_TIME_OUT_NS (250 * JE_NS_PER_MS)
#define MARGIN_NS (10 * JE_NS_PER_MS)
#define FIRST_TIME_OUT_NS (60 * JE_NS_PER_MS)
#define BACKED_OFF_NS (50 * JE_NS_PER_MS)
#define MOST_TIMES 8

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

void je_window_begin(je_window *window)
{
    *window = (je_window){.packets = FIRST, .slow_start_until = MOST, .alpha = 1.0, .before_time_out = FIRST};
}

bool je_window_in_slow_start(const je_window *window)
{
    return window->packets < window->slow_start_until;
}

static void cut(je_window *window, double factor, uint64_t next_tx)
{
    window->packets = most(window->packets * factor, LEAST);
    window->slow_start_until = window->packets;
    window->cut_until_tx = next_tx;
}

void je_window_on_ack(je_window *window, int64_t acked, int64_t marked, uint64_t newest_tx, uint64_t next_tx,
                      bool full)
{
    window->seen += acked;
    window->marked += marked;
    if (marked && newest_tx >= window->cut_until_tx)
        cut(window, 1.0 - window->alpha / 2.0, next_tx);
    if (full) {
        double growth = je_window_in_slow_start(window) ? (double)acked : (double)acked / window->packets;
        window->packets = least(window->packets + growth, MOST);
    }
    if (newest_tx >= window->round_ends_tx) {
        double share = (double)window->marked / (double)(window->seen > 1 ? window->seen : 1);
        window->alpha += G * (least(1.0, share) - window->alpha);
        window->seen = window->marked = 0;
        window->round_ends_tx = next_tx;
    }
}

void je_window_on_loss(je_window *window, uint64_t newest_tx, uint64_t next_tx)
{
    if (newest_tx >= window->cut_until_tx)
        cut(window, 0.5, next_tx);
}

void je_window_on_time_out(je_window *window, int times)
{
    if (times == 1) {
        window->before_time_out = most(window->packets, FIRST);
        window->slow_start_until = most(window->packets / 2.0, LEAST);
    }
    window->packets = times == 1 ? window->slow_start_until : LEAST;
}

void je_window_on_new_path(je_window *window, uint64_t next_tx)
{
    window->packets = most(FIRST, most(window->packets, window->before_time_out) / 2.0);
    window->slow_start_until = most(window->slow_start_until, window->packets);
    window->before_time_out = FIRST;
    window->round_ends_tx = window->cut_until_tx = next_tx;
    window->seen = window->marked = 0;
}

void je_pacer_begin(je_pacer *pacer, int64_t now_ns)
{
    *pacer = (je_pacer){.credit = FLOOR_OCTETS, .at_ns = now_ns};
}

void je_pacer_refill(je_pacer *pacer, double rate_bps, int64_t now_ns)
{
    double gained = (double)(now_ns - pacer->at_ns) * rate_bps / 8 / NS_PER_S;
    double highest = most(FLOOR_OCTETS, rate_bps * BURST_NS / 8 / NS_PER_S);
    pacer->credit = least(pacer->credit + gained, highest);
    pacer->at_ns = now_ns;
}

void je_pacer_spend(je_pacer *pacer, uint32_t datagram_octets)
{
    pacer->credit -= (double)(datagram_octets + OVERHEAD_OCTETS);
}

int64_t je_pacer_next_ns(const je_pacer *pacer, double rate_bps)
{
    if (pacer->credit > 0.0)
        return pacer->at_ns;
    return pacer->at_ns + 1 + (int64_t)(-pacer->credit * 8 * NS_PER_S / rate_bps);
}

int64_t je_round_trip_time_out_ns(const je_round_trip *round_trip)
{
    if (!round_trip->smoothed_ns)
        return FIRST_TIME_OUT_NS;
    int64_t spread_ns = 4 * round_trip->spread_ns;
    int64_t plain_ns = round_trip->smoothed_ns + (spread_ns > MARGIN_NS ? spread_ns : MARGIN_NS);
    plain_ns = plain_ns < LEAST_TIME_OUT_NS ? LEAST_TIME_OUT_NS : plain_ns;
    plain_ns = plain_ns > MOST_TIME_OUT_NS ? MOST_TIME_OUT_NS : plain_ns;
    int64_t backed_off_ns = plain_ns << round_trip->times;
    int64_t longest_ns = plain_ns > BACKED_OFF_NS ? plain_ns : BACKED_OFF_NS;
    return backed_off_ns < longest_ns ? backed_off_ns : longest_ns;
}

/* Rounded down, as Python's // is. */
static int64_t divided(int64_t value, int64_t by)
{
    return value / by - (value % by < 0);
}

void je_round_trip_measure(je_round_trip *round_trip, int64_t rtt_ns)
{
    if (!round_trip->smoothed_ns) {
        round_trip->smoothed_ns = rtt_ns > 1 ? rtt_ns : 1;
        round_trip->spread_ns = divided(rtt_ns, 2);
        return;
    }
    int64_t away_ns = rtt_ns - round_trip->smoothed_ns;
    round_trip->spread_ns += divided((away_ns < 0 ? -away_ns : away_ns) - round_trip->spread_ns, 4);
    int64_t smoothed_ns = round_trip->smoothed_ns + divided(away_ns, 8);
    round_trip->smoothed_ns = smoothed_ns > 1 ? smoothed_ns : 1;
}

int je_round_trip_on_time_out(je_round_trip *round_trip)
{
    if (round_trip->times < MOST_TIMES)
        round_trip->times++;
    return round_trip->times;
}
