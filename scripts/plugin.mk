# Compiles handler/*.cc and links them with the Rust core into ha_myriad.so. Called by scripts/build-plugin.sh, which
# passes core=<static library> and sanitize=<1 or empty>.
S := build/server-src
out := $(if $(sanitize),build/sanitize,build)
objects := $(patsubst handler/%.cc,$(out)/handler/%.o,$(wildcard handler/*.cc))

version := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

CXX ?= g++
# The defines are those of the server's own build (my_config.h has the rest): another set would change class layouts.
CPPFLAGS := -DMYSQL_DYNAMIC_PLUGIN -DHAVE_CONFIG_H -DDBUG_OFF -Ihandler -isystem /usr/include/mariadb/server \
  -isystem build/gen -isystem $(S)/include -isystem $(S)/sql -isystem $(S)/wsrep-lib/include \
  -isystem $(S)/wsrep-lib/wsrep-API/v26
CXXFLAGS := -std=c++17 -O2 -g1 -fPIC -fno-semantic-interposition -fno-strict-aliasing -Wall -Wextra -Wno-missing-field-initializers
# Only the core's symbols are hidden: the server fills in those of libmysqlservices by name. Ours are called directly.
LDFLAGS := -shared -Wl,--gc-sections -Wl,--exclude-libs,libmyriad_capi.a -Wl,-Bsymbolic-functions
ifneq ($(sanitize),)
CXXFLAGS += -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined -fno-omit-frame-pointer
LDFLAGS += -fsanitize=address,undefined
endif

$(out)/ha_myriad.so: $(objects) $(core) scripts/plugin.mk scripts/check_symbols.sh
	@echo "link $@"
	@$(CXX) $(LDFLAGS) -o $@.tmp $(objects) $(core) -lmysqlservices -lpthread -ldl -lm -lrt
	@$(if $(sanitize),,scripts/check_symbols.sh $@.tmp)
	@mv $@.tmp $@

$(out)/handler/%.o: handler/%.cc scripts/plugin.mk build/server-version
	@mkdir -p $(@D)
	@echo "compile $<"
	@$(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c -o $@ $<

# What SHOW PLUGINS tells; the number has major and minor one.
$(out)/handler/handlerton.o: Cargo.toml
$(out)/handler/handlerton.o: CPPFLAGS += -DMYRIAD_VERSION='"$(version)"' \
  -DMYRIAD_VERSION_NUMBER=$(shell printf '0x%02x%02x' $(wordlist 1,2,$(subst ., ,$(version))))

-include $(objects:.o=.d)
