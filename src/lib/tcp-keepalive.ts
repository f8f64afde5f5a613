// How soon TCP keepalive finds a dead connection on which this side only receives, such as a watch.

/**
 * The delay before the first probe. The runtime sends ten probes, one per second (TCP_KEEPINTVL 1, TCP_KEEPCNT 10), so a
 * connection is lost after 17 s without an answer, and another one is open within 20 s.
 */
export const KEEP_ALIVE_IDLE_MS = 7_000;
export const KEEP_ALIVE_LIMIT_MS = KEEP_ALIVE_IDLE_MS + 10_000;
