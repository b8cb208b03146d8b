/* Answering one call's datagrams. A call is a batch as the numpy reflector sees it: what its rules take together (who
 * is new, who has how much of a rate) is taken together here, so that both answer alike. Three passes: who is answered;
 * which sessions they belong to; the answers. */
#include <string.h>

#include "octets.h"
#include "reflector.h"
#include "reflector_state.h"

static void refuse(pe_reflector *reflector, pe_reply *reply, enum pe_reason reason)
{
    reply->reason = (uint8_t)reason;
    reflector->counts.refused[reason]++;
}

static enum pe_reason form_of(const pe_reflector *reflector, const pe_datagram *datagram)
{
    if (datagram->length_octets < reflector->codec.layout.base_octets)
        return PE_SHORT;
    if (datagram->length_octets > datagram->room_octets)
        return PE_CUT;
    return pe_is_answer(&reflector->codec, datagram->data) ? PE_ANSWER : PE_GOOD;
}

/* Which session a probe belongs to, and whether its sender is answered at all; that is decided once a session, and
 * anew for every packet of a stranger. */
static enum pe_reason admit(pe_reflector *reflector, const pe_datagram *datagram, pe_arrival *arrival)
{
    *arrival = (pe_arrival){
        .key = {.socket = datagram->socket,
                .port = datagram->port,
                .ssid = pe_get16(datagram->data + reflector->codec.layout.ssid)},
        .seq = pe_get32(datagram->data),
    };
    memcpy(arrival->key.address, datagram->address, PE_ADDRESS_OCTETS);
    arrival->row = pe_session_find(&reflector->sessions, &arrival->key);
    arrival->bucket =
        arrival->row == PE_NO_SESSION ? PE_UNADMITTED : reflector->sessions.rows[arrival->row].bucket;
    if (arrival->bucket != PE_UNADMITTED)
        return PE_GOOD;
    pe_admission admission = pe_admit(&reflector->known, datagram->address, datagram->port);
    arrival->fresh = true;
    arrival->bucket = admission.bucket;
    arrival->stranger = admission.stranger;
    return admission.reason;
}

static uint32_t good_of(const pe_reply *replies, uint32_t count)
{
    uint32_t good = 0;
    for (uint32_t i = 0; i < count; i++)
        good += replies[i].reason == PE_GOOD;
    return good;
}

/* Refuse what goes beyond the answers per second. */
static void limit_all(pe_reflector *reflector, uint32_t count, int64_t now_ns, pe_reply *replies)
{
    uint32_t granted = pe_bucket_granted(&reflector->all, good_of(replies, count), now_ns);
    for (uint32_t i = 0; i < count; i++)
        if (replies[i].reason == PE_GOOD && granted-- == 0) {
            refuse(reflector, &replies[i], PE_RATE);
            granted = 0;
        }
}

/* Whether a sender was found to be a stranger in this call, answered or not: then the strangers' bucket is filled. */
static bool any_stranger(const pe_reflector *reflector, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (reflector->arrivals[i].stranger)
            return true;
    return false;
}

/* Refuse what goes beyond a sender's rate, and that of all strangers. */
static void limit_senders(pe_reflector *reflector, uint32_t count, int64_t now_ns, pe_reply *replies)
{
    pe_source_buckets *sources = &reflector->known.sources;
    const pe_arrival *arrivals = reflector->arrivals;
    bool all = pe_source_all_granted(sources, good_of(replies, count), now_ns);
    uint32_t strangers = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (replies[i].reason != PE_GOOD)
            continue;
        if (all)
            pe_source_passed(sources, arrivals[i].bucket);
        else if (!pe_source_granted(sources, arrivals[i].bucket))
            refuse(reflector, &replies[i], PE_SOURCE_RATE);
        strangers += arrivals[i].stranger && replies[i].reason == PE_GOOD;
    }
    if (!all)
        pe_source_done(sources);
    if (!any_stranger(reflector, count))
        return;
    uint32_t granted = pe_bucket_granted(&reflector->known.strangers, strangers, now_ns);
    for (uint32_t i = 0; i < count; i++)
        if (replies[i].reason == PE_GOOD && arrivals[i].stranger && granted-- == 0) {
            refuse(reflector, &replies[i], PE_STRANGER_RATE);
            granted = 0;
        }
}

static void check_macs(pe_reflector *reflector, const pe_datagram *datagrams, uint32_t count, pe_reply *replies)
{
    for (uint32_t i = 0; i < count; i++)
        if (replies[i].reason == PE_GOOD && !pe_proven(&reflector->codec, &datagrams[i]))
            refuse(reflector, &replies[i], PE_BAD_HMAC);
}

/* First pass. A sender's rate is taken of packets with the right HMAC only: nobody else can use it up. Checking HMACs
 * is what costs most, so the rate of all comes before. */
static void choose(pe_reflector *reflector, const pe_datagram *datagrams, uint32_t count, int64_t now_ns,
                   pe_reply *replies)
{
    for (uint32_t i = 0; i < count; i++) {
        replies[i] = (pe_reply){.token = -1};
        reflector->arrivals[i].stranger = false;
        enum pe_reason reason = form_of(reflector, &datagrams[i]);
        if (reason == PE_GOOD)
            reason = admit(reflector, &datagrams[i], &reflector->arrivals[i]);
        if (reason != PE_GOOD)
            refuse(reflector, &replies[i], reason);
    }
    if (!reflector->codec.authenticated) {
        limit_senders(reflector, count, now_ns, replies);
        limit_all(reflector, count, now_ns, replies);
        return;
    }
    limit_all(reflector, count, now_ns, replies);
    check_macs(reflector, datagrams, count, replies);
    limit_senders(reflector, count, now_ns, replies);
}

static void leave_path(pe_reflector *reflector, pe_session *session, int64_t now_ns)
{
    if (session->path != PE_NO_PATH)
        pe_inbound_leave(&reflector->inbound, session->path, now_ns);
    session->path = PE_NO_PATH;
}

/* The row of a new session, or none. `more`: rows that this call may yet ask for, this one included. */
static uint32_t begin_session(pe_reflector *reflector, const pe_arrival *arrival, uint32_t more, int64_t now_ns)
{
    pe_sessions *sessions = &reflector->sessions;
    uint32_t row = arrival->stranger ? pe_session_room_stranger(sessions, now_ns)
                                     : pe_session_room(sessions, arrival->key.address, more, now_ns);
    if (row == PE_NO_SESSION)
        return row;
    if (sessions->rows[row].present)
        leave_path(reflector, &sessions->rows[row], now_ns);
    pe_session_begin(sessions, row, &arrival->key, arrival->stranger, now_ns);
    return row;
}

/* Whether this session has been refused a row in this call before: it is counted once. */
static bool is_lost(const pe_reflector *reflector, const pe_session_key *key, uint32_t lost)
{
    for (uint32_t i = 0; i < lost; i++)
        if (memcmp(&reflector->arrivals[reflector->lost[i]].key, key, sizeof *key) == 0)
            return true;
    return false;
}

/* Begin the new sessions of known senders, or of strangers, as far as there is room. */
static void begin_sessions(pe_reflector *reflector, bool strangers, uint32_t count, int64_t now_ns,
                           const pe_reply *replies)
{
    uint32_t more = reflector->sessions.limits.new_per_call, lost = 0;
    for (uint32_t i = 0; i < count; i++) {
        const pe_arrival *arrival = &reflector->arrivals[i];
        if (replies[i].reason != PE_GOOD || arrival->row != PE_NO_SESSION || arrival->stranger != strangers ||
            pe_session_find(&reflector->sessions, &arrival->key) != PE_NO_SESSION ||
            is_lost(reflector, &arrival->key, lost))
            continue;
        uint32_t wanted = more < count - i ? more : count - i;
        uint32_t row = more == 0 ? PE_NO_SESSION : begin_session(reflector, arrival, wanted, now_ns);
        more -= more > 0;
        if (row == PE_NO_SESSION) {
            reflector->lost[lost++] = i;
            reflector->counts.shed_sessions++;
        }
    }
}

/* Tie a session to the path that it probes, when its sender is a known NIC. */
static void watch(pe_reflector *reflector, const pe_arrival *arrival, int64_t now_ns)
{
    pe_session *session = &reflector->sessions.rows[arrival->row];
    session->dscp = arrival->dscp;
    leave_path(reflector, session, now_ns);
    uint32_t socket = arrival->key.socket;
    pe_inbound_name name = {
        .nic = socket < reflector->most_sockets ? reflector->nics[socket] : PE_NO_NIC,
        .sender = pe_nic_of_sender(&reflector->known, arrival->key.address),
        .port = arrival->key.port,
        .dscp = arrival->dscp,
    };
    if (name.nic != PE_NO_NIC && name.sender != PE_NO_NIC)
        session->path = pe_inbound_join(&reflector->inbound, &name, arrival->key.address, now_ns);
}

/* Second pass. A row may have been given away to another of the call's sessions, so all are looked up anew. */
static void find_sessions(pe_reflector *reflector, const pe_datagram *datagrams, uint32_t count, int64_t now_ns,
                          const pe_reply *replies)
{
    bool any_new = false;
    for (uint32_t i = 0; i < count; i++)
        any_new |= replies[i].reason == PE_GOOD && reflector->arrivals[i].row == PE_NO_SESSION;
    if (any_new) {
        pe_sessions_call(&reflector->sessions);
        begin_sessions(reflector, false, count, now_ns, replies);
        begin_sessions(reflector, true, count, now_ns, replies);
    }
    for (uint32_t i = 0; i < count; i++) {
        pe_arrival *arrival = &reflector->arrivals[i];
        if (replies[i].reason != PE_GOOD)
            continue;
        if (any_new)
            arrival->row = pe_session_find(&reflector->sessions, &arrival->key);
        if (arrival->row == PE_NO_SESSION)
            continue;
        pe_session *session = &reflector->sessions.rows[arrival->row];
        if (arrival->fresh && !arrival->stranger)
            session->bucket = arrival->bucket;
        arrival->dscp = pe_class_sent(&reflector->codec, datagrams[i].data, datagrams[i].length_octets,
                                      datagrams[i].tos);
        arrival->moved = session->dscp != arrival->dscp;
    }
    for (uint32_t i = 0; i < count; i++)
        if (replies[i].reason == PE_GOOD && reflector->arrivals[i].row != PE_NO_SESSION && reflector->arrivals[i].moved)
            watch(reflector, &reflector->arrivals[i], now_ns);
}

/* Turn the base packet of a probe into that of its answer, but for number, T3 and HMAC. */
static void answer_base(const pe_reflector *reflector, const pe_datagram *datagram, int64_t t2_ns)
{
    const pe_layout *layout = &reflector->codec.layout;
    uint8_t *data = datagram->data;
    uint32_t seq = pe_get32(data);
    uint16_t error = pe_get16(data + layout->error), ssid = pe_get16(data + layout->ssid);
    uint64_t t1 = pe_get64(data + layout->stamp);
    memset(data, 0, layout->base_octets);
    pe_put32(data, seq);
    pe_put16(data + layout->error, reflector->codec.error);
    pe_put16(data + layout->ssid, ssid);
    pe_put64(data + layout->t2,
             pe_stamp_of(pe_clock_reading(&reflector->clock, t2_ns), reflector->codec.error));
    pe_put32(data + layout->sender_seq, seq);
    pe_put64(data + layout->sender_t1, t1);
    pe_put16(data + layout->sender_error, error);
    data[layout->ttl] = datagram->ttl;
}

/* The answer's number, its name for `pe_answer_left` and what it follows up, from its session. */
static void take_from_session(pe_reflector *reflector, uint32_t row, pe_probe_facts *facts, pe_reply *reply)
{
    pe_session *session = &reflector->sessions.rows[row];
    facts->seq = session->answers++;
    reply->token = (int64_t)((uint64_t)session->generation << 48 | (uint64_t)row << 32 | facts->seq);
    const pe_follow_up *follow_up = pe_session_follow_up(session);
    if (follow_up == NULL)
        return;
    facts->follows_up = true;
    facts->fu_seq = follow_up->seq;
    facts->fu_kind = follow_up->kind;
    facts->fu_word = pe_stamp_of(follow_up->shown_ns, reflector->codec.error);
}

static void answer(pe_reflector *reflector, const pe_datagram *datagram, const pe_arrival *arrival, pe_reply *reply)
{
    bool stamped = datagram->kind != PE_KIND_USER && datagram->kind != PE_KIND_NONE &&
                   datagram->at_ns != PE_ABSENT_NS;
    pe_probe_facts facts = {
        .seq = arrival->seq, .tos = datagram->tos, .t2_kind = stamped ? datagram->kind : PE_KIND_USER};
    if (reflector->stateful && arrival->row != PE_NO_SESSION)
        take_from_session(reflector, arrival->row, &facts, reply);
    answer_base(reflector, datagram, stamped ? datagram->at_ns : datagram->user_at_ns);
    reply->tos = pe_answer_tlvs(&reflector->codec, &reflector->answering, &facts, datagram->data,
                                datagram->length_octets, reflector->counts.refused);
}

/* Of several probes of one session in a call the last counts, and of several sessions of one path the last. */
static void take_probes(pe_reflector *reflector, uint32_t count, int64_t now_ns, const pe_reply *replies)
{
    pe_sessions *sessions = &reflector->sessions;
    pe_arrival *arrivals = reflector->arrivals;
    for (uint32_t i = 0; i < count; i++)
        if (replies[i].reason == PE_GOOD && arrivals[i].row != PE_NO_SESSION)
            reflector->row_marks[arrivals[i].row] = i;
    for (uint32_t i = 0; i < count; i++) {
        pe_arrival *arrival = &arrivals[i];
        if (replies[i].reason != PE_GOOD || arrival->row == PE_NO_SESSION)
            continue;
        if (reflector->row_marks[arrival->row] != i) {
            arrival->row = PE_NO_SESSION;
            continue;
        }
        pe_session *session = &sessions->rows[arrival->row];
        uint32_t ahead = arrival->seq - session->seq;
        session->seq = arrival->seq;
        session->last_received_ns = now_ns;
        session->probes++;
        arrival->seq = ahead;
        if (session->path != PE_NO_PATH)
            reflector->path_marks[session->path] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        const pe_arrival *arrival = &arrivals[i];
        if (replies[i].reason != PE_GOOD || arrival->row == PE_NO_SESSION)
            continue;
        uint32_t path = sessions->rows[arrival->row].path;
        if (path != PE_NO_PATH && reflector->path_marks[path] == i)
            pe_inbound_arrived(&reflector->inbound, path, arrival->seq, now_ns);
    }
}

uint32_t pe_reflect(pe_reflector *reflector, pe_datagram *datagrams, uint32_t count, int64_t now_ns,
                    pe_reply *replies)
{
    uint32_t answered = 0;
    if (count > PE_REFLECT_MOST)
        return 0;
    choose(reflector, datagrams, count, now_ns, replies);
    find_sessions(reflector, datagrams, count, now_ns, replies);
    for (uint32_t i = 0; i < count; i++)
        if (replies[i].reason == PE_GOOD) {
            answer(reflector, &datagrams[i], &reflector->arrivals[i], &replies[i]);
            answered++;
        }
    take_probes(reflector, count, now_ns, replies);
    reflector->counts.answered += answered;
    return answered;
}

void pe_seal(const pe_reflector *reflector, uint8_t *data, int64_t system_ns)
{
    const pe_codec *codec = &reflector->codec;
    int64_t t3_ns = pe_clock_reading(&reflector->clock, system_ns);
    pe_put64(data + codec->layout.stamp, pe_stamp_of(t3_ns, codec->error));
    if (codec->authenticated)
        pe_mac_of_base(codec, data, data + codec->layout.mac);
}
