/* A server and a client in the manner of libfabric's man pages: hello server SERVICE | hello client NODE SERVICE.
 * The client finds the server by node and service and sends it a message; the server prints it and answers to the address that came with it. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(const char *call, ssize_t result)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", call, fi_strerror((int)-result));
        exit(1);
    }
}
#define CHECK(call) check(#call, call)

static void wait_for_one(struct fid_cq *cq)
{
    struct fi_cq_tagged_entry entry;
    ssize_t n;
    while ((n = fi_cq_sread(cq, &entry, 1, NULL, -1)) == -FI_EAGAIN)
        ;
    if (n == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        CHECK(fi_cq_readerr(cq, &error, 0));
        n = -error.err;
    }
    check("fi_cq_sread", n);
}

int main(int argc, char **argv)
{
    int is_client = argc == 4 && !strcmp(argv[1], "client");
    if (!is_client && (argc != 3 || strcmp(argv[1], "server"))) {
        fprintf(stderr, "usage: hello server SERVICE | hello client NODE SERVICE\n");
        return 2;
    }
    struct fi_info *hints = fi_allocinfo(), *info;
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    CHECK(fi_getinfo(FI_VERSION(1, 14), is_client ? argv[2] : NULL, argv[argc - 1], is_client ? 0 : FI_SOURCE, hints, &info));

    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_eq *eq;
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
    CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
    CHECK(fi_eq_open(fabric, &eq_attr, &eq, NULL));
    CHECK(fi_domain(fabric, info, &domain, NULL));
    CHECK(fi_av_open(domain, &av_attr, &av, NULL));
    CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL));
    CHECK(fi_endpoint(domain, info, &ep, NULL));
    CHECK(fi_ep_bind(ep, &eq->fid, 0));
    CHECK(fi_ep_bind(ep, &av->fid, 0));
    CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    CHECK(fi_enable(ep));

    struct { char name[256]; size_t len; char text[64]; } message = {.len = sizeof message.name};
    fi_addr_t peer;
    if (is_client) {
        if (fi_av_insert(av, info->dest_addr, 1, &peer, 0, NULL) != 1)
            check("fi_av_insert", -FI_EADDRNOTAVAIL);
        CHECK(fi_getname(&ep->fid, message.name, &message.len));
        strcpy(message.text, "hello");
        CHECK(fi_tsend(ep, &message, sizeof message, NULL, peer, 1, NULL));
        wait_for_one(cq);
        CHECK(fi_trecv(ep, &message, sizeof message, NULL, FI_ADDR_UNSPEC, 2, 0, NULL));
        wait_for_one(cq);
        printf("client: %s\n", message.text);
    } else {
        CHECK(fi_trecv(ep, &message, sizeof message, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
        wait_for_one(cq);
        printf("server: %s\n", message.text);
        if (fi_av_insert(av, message.name, 1, &peer, 0, NULL) != 1)
            check("fi_av_insert", -FI_EADDRNOTAVAIL);
        strcpy(message.text, "hello to you");
        CHECK(fi_tsend(ep, &message, sizeof message, NULL, peer, 2, NULL));
        wait_for_one(cq);
    }
    CHECK(fi_close(&ep->fid));
    CHECK(fi_close(&cq->fid));
    CHECK(fi_close(&av->fid));
    CHECK(fi_close(&domain->fid));
    CHECK(fi_close(&eq->fid));
    CHECK(fi_close(&fabric->fid));
    fi_freeinfo(info);
    fi_freeinfo(hints);
    return 0;
}
