// A provider that costs almost nothing: one thread, epoll, answers that were made beforehand.
//
//   mock PORT GAP_MS ANSWER PIECE...
//
// ANSWER is a file with a whole HTTP response, sent to a request without "stream": true. PIECE... are files that together
// are the chunked response to one with it: the first leaves at once, each other one GAP_MS after the one before, the last
// two together. Every stream has the same gap, so streams wait in a plain queue: whoever came first is due first.
// Built with -DWITH_TLS (and -lssl -lcrypto) it speaks TLS where $MOCK_CERTIFICATE and $MOCK_KEY name PEM files.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_TLS
#include <openssl/ssl.h>
static SSL_CTX *context;
#else
typedef void SSL;
#endif

enum { MAX_FD = 65536, MAX_PIECES = 256, EVENTS = 256 };

typedef struct { char *bytes; size_t length; } Text;
typedef struct { char *bytes; size_t used, room; unsigned life; SSL *tls; } Connection;  // life: an fd is used again, a queued turn is not
typedef struct { int fd, next; unsigned life; double due; } Turn;

static Connection connections[MAX_FD];
static Turn queue[MAX_FD];  // a ring; a connection has at most one turn ahead
static unsigned first_turn, turns;
static Text answer, pieces[MAX_PIECES];
static int piece_count, epoll;
static double gap;

static void fail(const char *what) { perror(what); exit(1); }

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static Text load(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) fail(path);
    Text text = {.length = (size_t)ftell(file)};
    rewind(file);
    text.bytes = malloc(text.length + 1);
    if (!text.bytes || fread(text.bytes, 1, text.length, file) != text.length) fail(path);
    fclose(file);
    return text;
}

// As send() and recv(): -1 with EAGAIN is "not now".
static ssize_t give(int fd, const char *bytes, size_t length) {
#ifdef WITH_TLS
    SSL *tls = connections[fd].tls;
    if (tls) {
        int sent = SSL_write(tls, bytes, (int)length);
        if (sent > 0) return sent;
        errno = SSL_get_error(tls, sent) == SSL_ERROR_WANT_WRITE ? EAGAIN : EPIPE;
        return -1;
    }
#endif
    return send(fd, bytes, length, MSG_NOSIGNAL);
}

static ssize_t take(int fd, char *bytes, size_t room) {
#ifdef WITH_TLS
    SSL *tls = connections[fd].tls;
    if (tls) {
        int got = SSL_read(tls, bytes, (int)room);
        if (got > 0) return got;
        int why = SSL_get_error(tls, got);
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return 0;
        errno = EAGAIN;
        return -1;
    }
#endif
    return recv(fd, bytes, room, 0);
}

static void put(int fd, const char *bytes, size_t length) {
    while (length) {
        ssize_t sent = give(fd, bytes, length);
        if (sent < 0 && errno == EAGAIN) { usleep(20); continue; }
        if (sent < 0) return;  // its end will be read
        bytes += sent;
        length -= (size_t)sent;
    }
}

static void wait_turn(int fd, int next, double due) {
    queue[(first_turn + turns++) % MAX_FD] = (Turn){fd, next, connections[fd].life, due};
}

static void take_due_turns(double now) {
    while (turns && queue[first_turn].due <= now) {
        Turn turn = queue[first_turn];
        first_turn = (first_turn + 1) % MAX_FD;
        turns--;
        if (turn.life != connections[turn.fd].life) continue;
        put(turn.fd, pieces[turn.next].bytes, pieces[turn.next].length);
        if (turn.next == piece_count - 2) put(turn.fd, pieces[turn.next + 1].bytes, pieces[turn.next + 1].length);
        else wait_turn(turn.fd, turn.next + 1, turn.due + gap);
    }
}

static int asks_for_stream(const char *body, size_t length) {
    return memmem(body, length, "\"stream\":true", 13) || memmem(body, length, "\"stream\": true", 14);
}

// Takes one whole request off the connection's bytes and answers it; 0 while it is not whole.
static int take_request(int fd) {
    Connection *c = &connections[fd];
    char *end = memmem(c->bytes, c->used, "\r\n\r\n", 4);
    if (!end) return 0;
    char *body = end + 4, *last = c->bytes + c->used;
    *end = 0;
    char *length = strcasestr(c->bytes, "\r\ncontent-length:");
    int chunked = !length && strcasestr(c->bytes, "\r\ntransfer-encoding:");
    *end = '\r';
    char *rest = length ? body + atol(length + 17) : body;
    if (chunked) {
        rest = memmem(body, (size_t)(last - body), "0\r\n\r\n", 5);
        if (!rest) return 0;
        rest += 5;
    }
    if (rest > last) return 0;
    if (asks_for_stream(body, (size_t)(rest - body))) {
        put(fd, pieces[0].bytes, pieces[0].length);
        wait_turn(fd, 1, now_ms() + gap);
    } else put(fd, answer.bytes, answer.length);
    memmove(c->bytes, rest, (size_t)(last - rest));
    c->used = (size_t)(last - rest);
    return 1;
}

static void forget(int fd) {
#ifdef WITH_TLS
    if (connections[fd].tls) SSL_free(connections[fd].tls);
    connections[fd].tls = NULL;
#endif
    connections[fd].life++;
    connections[fd].used = 0;
    close(fd);
}

// Reads once; whether there may be more that epoll would not tell of, because TLS has taken it off the socket.
static int receive(int fd) {
    Connection *c = &connections[fd];
    if (c->room - c->used < 16384) {
        c->room = c->room ? c->room * 2 : 32768;
        if (!(c->bytes = realloc(c->bytes, c->room))) fail("realloc");
    }
    ssize_t got = take(fd, c->bytes + c->used, c->room - c->used);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got <= 0) { forget(fd); return 0; }
    c->used += (size_t)got;
    while (take_request(fd)) {}
#ifdef WITH_TLS
    return c->tls && SSL_pending(c->tls);
#else
    return 0;
#endif
}

static void welcome(int listener) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= MAX_FD) { close(fd); continue; }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef WITH_TLS
        if (context) {
            SSL *tls = connections[fd].tls = SSL_new(context);
            if (!tls || !SSL_set_fd(tls, fd)) fail("tls");
            SSL_set_accept_state(tls);
        }
#endif
        struct epoll_event interest = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &interest);
    }
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096)) fail("listen");
    return fd;
}

static void speak_tls(const char *certificate, const char *key) {
#ifdef WITH_TLS
    context = SSL_CTX_new(TLS_server_method());
    if (!context || SSL_CTX_use_certificate_chain_file(context, certificate) != 1 || SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1) {
        fprintf(stderr, "%s and %s are no certificate and its key\n", certificate, key);
        exit(1);
    }
#else
    fprintf(stderr, "built without TLS: %s and %s are of no use\n", certificate, key);
    exit(1);
#endif
}

int main(int count, char **words) {
    if (count < 6 || count - 4 > MAX_PIECES) { fprintf(stderr, "usage: mock PORT GAP_MS ANSWER PIECE PIECE...\n"); return 2; }
    signal(SIGPIPE, SIG_IGN);
    if (getenv("MOCK_CERTIFICATE")) speak_tls(getenv("MOCK_CERTIFICATE"), getenv("MOCK_KEY"));
    gap = atof(words[2]);
    answer = load(words[3]);
    for (int i = 4; i < count; i++) pieces[piece_count++] = load(words[i]);
    int listener = listen_on(atoi(words[1]));
    epoll = epoll_create1(0);
    struct epoll_event interest = {.events = EPOLLIN, .data.fd = listener}, happened[EVENTS];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &interest);
    for (;;) {
        double ahead = turns ? queue[first_turn].due - now_ms() : 1000;
        int events = epoll_wait(epoll, happened, EVENTS, ahead <= 0 ? 0 : (int)ahead + 1);
        for (int i = 0; i < events; i++) {
            if (happened[i].data.fd == listener) welcome(listener);
            else while (receive(happened[i].data.fd)) {}
        }
        take_due_turns(now_ms());
    }
}
