// TCP keepalive settings for connections on which this side only receives, such as watches.

/**
 * Delay before the first probe. The runtime sends ten probes, one per second (TCP_KEEPINTVL 1, TCP_KEEPCNT 10), so a dead
 * connection is detected after 17 s, and replaced within 20 s.
 */
export const KEEP_ALIVE_IDLE_MS = 7_000;
export const KEEP_ALIVE_LIMIT_MS = KEEP_ALIVE_IDLE_MS + 10_000;
