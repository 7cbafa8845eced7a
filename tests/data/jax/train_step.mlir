module @jit_train_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<12x32xf32> {tf.aliasing_output = 1 : i32}, %arg1: tensor<2x32xf32>, %arg2: tensor<2x32x32xf32>, %arg3: tensor<2x32x32xf32>, %arg4: tensor<2x32x32xf32>, %arg5: tensor<2x32x32xf32>, %arg6: tensor<2x32xf32>, %arg7: tensor<2x32x64xf32>, %arg8: tensor<2x64x32xf32>, %arg9: tensor<4x9xi32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<12x32xf32> {jax.result_info = "result[1]"}, tensor<2x32xf32> {jax.result_info = "result[2]"}, tensor<2x32x32xf32> {jax.result_info = "result[3]"}, tensor<2x32x32xf32> {jax.result_info = "result[4]"}, tensor<2x32x32xf32> {jax.result_info = "result[5]"}, tensor<2x32x32xf32> {jax.result_info = "result[6]"}, tensor<2x32xf32> {jax.result_info = "result[7]"}, tensor<2x32x64xf32> {jax.result_info = "result[8]"}, tensor<2x64x32xf32> {jax.result_info = "result[9]"}) {
    %cst = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<12x32xf32>
    %1 = stablehlo.divide %arg0, %0 : tensor<12x32xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
    %3 = stablehlo.divide %arg1, %2 : tensor<2x32xf32>
    %cst_1 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x32x32xf32>
    %5 = stablehlo.divide %arg2, %4 : tensor<2x32x32xf32>
    %cst_2 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x32x32xf32>
    %7 = stablehlo.divide %arg3, %6 : tensor<2x32x32xf32>
    %cst_3 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2x32x32xf32>
    %9 = stablehlo.divide %arg4, %8 : tensor<2x32x32xf32>
    %cst_4 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %10 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2x32x32xf32>
    %11 = stablehlo.divide %arg5, %10 : tensor<2x32x32xf32>
    %cst_5 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
    %13 = stablehlo.divide %arg6, %12 : tensor<2x32xf32>
    %cst_6 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<2x32x64xf32>
    %15 = stablehlo.divide %arg7, %14 : tensor<2x32x64xf32>
    %cst_7 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %16 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<2x64x32xf32>
    %17 = stablehlo.divide %arg8, %16 : tensor<2x64x32xf32>
    %18 = stablehlo.slice %arg9 [0:4, 0:8] : (tensor<4x9xi32>) -> tensor<4x8xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %19 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<4x8xi32>
    %20 = stablehlo.compare LT, %18, %19, SIGNED : (tensor<4x8xi32>, tensor<4x8xi32>) -> tensor<4x8xi1>
    %c_8 = stablehlo.constant dense<12> : tensor<i32>
    %21 = stablehlo.broadcast_in_dim %c_8, dims = [] : (tensor<i32>) -> tensor<4x8xi32>
    %22 = stablehlo.add %18, %21 : tensor<4x8xi32>
    %23 = stablehlo.select %20, %22, %18 : tensor<4x8xi1>, tensor<4x8xi32>
    %24 = stablehlo.broadcast_in_dim %23, dims = [0, 1] : (tensor<4x8xi32>) -> tensor<4x8x1xi32>
    %25 = "stablehlo.gather"(%1, %24) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 32>}> : (tensor<12x32xf32>, tensor<4x8x1xi32>) -> tensor<4x8x32xf32>
    %c_9 = stablehlo.constant dense<true> : tensor<i1>
    %26 = stablehlo.broadcast_in_dim %c_9, dims = [] : (tensor<i1>) -> tensor<4x8xi1>
    %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %27 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %c_11 = stablehlo.constant dense<0> : tensor<i32>
    %28:4 = call @_var(%c_11) : (tensor<i32>) -> (tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<4x8x1xf32>)
    %29 = stablehlo.broadcast_in_dim %27, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %c_12 = stablehlo.constant dense<true> : tensor<i1>
    %30 = stablehlo.broadcast_in_dim %c_12, dims = [] : (tensor<i1>) -> tensor<8x8xi1>
    %31 = call @tril(%30) : (tensor<8x8xi1>) -> tensor<8x8xi1>
    %32 = stablehlo.broadcast_in_dim %26, dims = [0, 3] : (tensor<4x8xi1>) -> tensor<4x1x1x8xi1>
    %33 = stablehlo.broadcast_in_dim %31, dims = [2, 3] : (tensor<8x8xi1>) -> tensor<1x1x8x8xi1>
    %34 = stablehlo.broadcast_in_dim %33, dims = [0, 1, 2, 3] : (tensor<1x1x8x8xi1>) -> tensor<4x1x8x8xi1>
    %35 = stablehlo.broadcast_in_dim %32, dims = [0, 1, 2, 3] : (tensor<4x1x1x8xi1>) -> tensor<4x1x8x8xi1>
    %36 = stablehlo.and %34, %35 : tensor<4x1x8x8xi1>
    %cst_13 = stablehlo.constant dense<-1.000000e+30> : tensor<f32>
    %37:3 = call @_where_0(%36, %cst_13) : (tensor<4x1x8x8xi1>, tensor<f32>) -> (tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>, tensor<4x4x8x8xf32>)
    %cst_14 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %38 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %c_15 = stablehlo.constant dense<0> : tensor<i32>
    %39:4 = call @_var(%c_15) : (tensor<i32>) -> (tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<4x8x1xf32>)
    %40 = stablehlo.broadcast_in_dim %38, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    call @silu() : () -> ()
    %cst_16 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %41 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<2x4x8x32xf32>
    %cst_17 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %42 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<2x4x8x1xf32>
    %cst_18 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %43 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<2x4x8x1xf32>
    %cst_19 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %44 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<2x4x8x32xf32>
    %cst_20 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %45 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<2x1x1x32xf32>
    %cst_21 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %46 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<f32>) -> tensor<2x4x8x32xf32>
    %cst_22 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %47 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<f32>) -> tensor<2x4x8x32xf32>
    %cst_23 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %48 = stablehlo.broadcast_in_dim %cst_23, dims = [] : (tensor<f32>) -> tensor<2x4x8x4x8xf32>
    %cst_24 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %49 = stablehlo.broadcast_in_dim %cst_24, dims = [] : (tensor<f32>) -> tensor<2x4x8x4x8xf32>
    %cst_25 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %50 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<f32>) -> tensor<2x4x4x8x8xf32>
    %cst_26 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %51 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<f32>) -> tensor<2x4x4x8x1xf32>
    %cst_27 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %52 = stablehlo.broadcast_in_dim %cst_27, dims = [] : (tensor<f32>) -> tensor<2x4x4x8x1xf32>
    %cst_28 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %53 = stablehlo.broadcast_in_dim %cst_28, dims = [] : (tensor<f32>) -> tensor<2x4x4x8x8xf32>
    %cst_29 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %54 = stablehlo.broadcast_in_dim %cst_29, dims = [] : (tensor<f32>) -> tensor<2x4x8x4x8xf32>
    %cst_30 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %55 = stablehlo.broadcast_in_dim %cst_30, dims = [] : (tensor<f32>) -> tensor<2x4x8x32xf32>
    %cst_31 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %56 = stablehlo.broadcast_in_dim %cst_31, dims = [] : (tensor<f32>) -> tensor<2x4x8x32xf32>
    %cst_32 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %57 = stablehlo.broadcast_in_dim %cst_32, dims = [] : (tensor<f32>) -> tensor<2x4x8x1xf32>
    %cst_33 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %58 = stablehlo.broadcast_in_dim %cst_33, dims = [] : (tensor<f32>) -> tensor<2x4x8x1xf32>
    %cst_34 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %59 = stablehlo.broadcast_in_dim %cst_34, dims = [] : (tensor<f32>) -> tensor<2x4x8x32xf32>
    %cst_35 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %60 = stablehlo.broadcast_in_dim %cst_35, dims = [] : (tensor<f32>) -> tensor<2x1x1x32xf32>
    %cst_36 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %61 = stablehlo.broadcast_in_dim %cst_36, dims = [] : (tensor<f32>) -> tensor<2x4x8x32xf32>
    %cst_37 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %62 = stablehlo.broadcast_in_dim %cst_37, dims = [] : (tensor<f32>) -> tensor<2x4x8x32xf32>
    %cst_38 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %63 = stablehlo.broadcast_in_dim %cst_38, dims = [] : (tensor<f32>) -> tensor<2x4x8x64xf32>
    %cst_39 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %64 = stablehlo.broadcast_in_dim %cst_39, dims = [] : (tensor<f32>) -> tensor<2x4x8x64xf32>
    %cst_40 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %65 = stablehlo.broadcast_in_dim %cst_40, dims = [] : (tensor<f32>) -> tensor<2x4x8x64xf32>
    %cst_41 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %66 = stablehlo.broadcast_in_dim %cst_41, dims = [] : (tensor<f32>) -> tensor<2x4x8x64xf32>
    %c_42 = stablehlo.constant dense<0> : tensor<i32>
    %67:46 = stablehlo.while(%iterArg = %3, %iterArg_66 = %5, %iterArg_67 = %7, %iterArg_68 = %9, %iterArg_69 = %11, %iterArg_70 = %13, %iterArg_71 = %15, %iterArg_72 = %17, %iterArg_73 = %28#0, %iterArg_74 = %28#1, %iterArg_75 = %28#3, %iterArg_76 = %29, %iterArg_77 = %37#0, %iterArg_78 = %37#2, %iterArg_79 = %39#0, %iterArg_80 = %39#1, %iterArg_81 = %39#3, %iterArg_82 = %40, %iterArg_83 = %c_42, %iterArg_84 = %25, %iterArg_85 = %41, %iterArg_86 = %42, %iterArg_87 = %43, %iterArg_88 = %44, %iterArg_89 = %45, %iterArg_90 = %46, %iterArg_91 = %47, %iterArg_92 = %48, %iterArg_93 = %49, %iterArg_94 = %50, %iterArg_95 = %51, %iterArg_96 = %52, %iterArg_97 = %53, %iterArg_98 = %54, %iterArg_99 = %55, %iterArg_100 = %56, %iterArg_101 = %57, %iterArg_102 = %58, %iterArg_103 = %59, %iterArg_104 = %60, %iterArg_105 = %61, %iterArg_106 = %62, %iterArg_107 = %63, %iterArg_108 = %64, %iterArg_109 = %65, %iterArg_110 = %66) : tensor<2x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32xf32>, tensor<2x32x64xf32>, tensor<2x64x32xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<1x1x32xf32>, tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<1x1x32xf32>, tensor<i32>, tensor<4x8x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x32xf32>, tensor<2x1x1x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x4x8xf32>, tensor<2x4x8x4x8xf32>, tensor<2x4x4x8x8xf32>, tensor<2x4x4x8x1xf32>, tensor<2x4x4x8x1xf32>, tensor<2x4x4x8x8xf32>, tensor<2x4x8x4x8xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x32xf32>, tensor<2x1x1x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x64xf32>, tensor<2x4x8x64xf32>, tensor<2x4x8x64xf32>, tensor<2x4x8x64xf32>
    cond {
      %c_111 = stablehlo.constant dense<2> : tensor<i32>
      %125 = stablehlo.compare LT, %iterArg_83, %c_111, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %125 : tensor<i1>
    } do {
      %125 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_83) : (tensor<2x32xf32>, tensor<i32>) -> tensor<32xf32>
      %126 = func.call @dynamic_index_in_dim_1(%iterArg_66, %iterArg_83) : (tensor<2x32x32xf32>, tensor<i32>) -> tensor<32x32xf32>
      %127 = func.call @dynamic_index_in_dim_1(%iterArg_67, %iterArg_83) : (tensor<2x32x32xf32>, tensor<i32>) -> tensor<32x32xf32>
      %128 = func.call @dynamic_index_in_dim_1(%iterArg_68, %iterArg_83) : (tensor<2x32x32xf32>, tensor<i32>) -> tensor<32x32xf32>
      %129 = func.call @dynamic_index_in_dim_1(%iterArg_69, %iterArg_83) : (tensor<2x32x32xf32>, tensor<i32>) -> tensor<32x32xf32>
      %130 = func.call @dynamic_index_in_dim(%iterArg_70, %iterArg_83) : (tensor<2x32xf32>, tensor<i32>) -> tensor<32xf32>
      %131 = func.call @dynamic_index_in_dim_2(%iterArg_71, %iterArg_83) : (tensor<2x32x64xf32>, tensor<i32>) -> tensor<32x64xf32>
      %132 = func.call @dynamic_index_in_dim_3(%iterArg_72, %iterArg_83) : (tensor<2x64x32xf32>, tensor<i32>) -> tensor<64x32xf32>
      %133:27 = func.call @closed_call(%iterArg_73, %iterArg_74, %iterArg_75, %iterArg_76, %iterArg_77, %iterArg_78, %iterArg_79, %iterArg_80, %iterArg_81, %iterArg_82, %iterArg_84, %125, %126, %127, %128, %129, %130, %131, %132) : (tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<1x1x32xf32>, tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<1x1x32xf32>, tensor<4x8x32xf32>, tensor<32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32xf32>, tensor<32x64xf32>, tensor<64x32xf32>) -> (tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x1xf32>, tensor<4x8x1xf32>, tensor<4x8x32xf32>, tensor<1x1x32xf32>, tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x4x8xf32>, tensor<4x8x4x8xf32>, tensor<4x4x8x8xf32>, tensor<4x4x8x1xf32>, tensor<4x4x8x1xf32>, tensor<4x4x8x8xf32>, tensor<4x8x4x8xf32>, tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x1xf32>, tensor<4x8x1xf32>, tensor<4x8x32xf32>, tensor<1x1x32xf32>, tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>)
      %134 = func.call @dynamic_update_index_in_dim(%iterArg_85, %133#1, %iterArg_83) : (tensor<2x4x8x32xf32>, tensor<4x8x32xf32>, tensor<i32>) -> tensor<2x4x8x32xf32>
      %135 = func.call @dynamic_update_index_in_dim_8(%iterArg_86, %133#2, %iterArg_83) : (tensor<2x4x8x1xf32>, tensor<4x8x1xf32>, tensor<i32>) -> tensor<2x4x8x1xf32>
      %136 = func.call @dynamic_update_index_in_dim_8(%iterArg_87, %133#3, %iterArg_83) : (tensor<2x4x8x1xf32>, tensor<4x8x1xf32>, tensor<i32>) -> tensor<2x4x8x1xf32>
      %137 = func.call @dynamic_update_index_in_dim(%iterArg_88, %133#4, %iterArg_83) : (tensor<2x4x8x32xf32>, tensor<4x8x32xf32>, tensor<i32>) -> tensor<2x4x8x32xf32>
      %138 = func.call @dynamic_update_index_in_dim_9(%iterArg_89, %133#5, %iterArg_83) : (tensor<2x1x1x32xf32>, tensor<1x1x32xf32>, tensor<i32>) -> tensor<2x1x1x32xf32>
      %139 = func.call @dynamic_update_index_in_dim(%iterArg_90, %133#6, %iterArg_83) : (tensor<2x4x8x32xf32>, tensor<4x8x32xf32>, tensor<i32>) -> tensor<2x4x8x32xf32>
      %140 = func.call @dynamic_update_index_in_dim(%iterArg_91, %133#7, %iterArg_83) : (tensor<2x4x8x32xf32>, tensor<4x8x32xf32>, tensor<i32>) -> tensor<2x4x8x32xf32>
      %141 = func.call @dynamic_update_index_in_dim_10(%iterArg_92, %133#8, %iterArg_83) : (tensor<2x4x8x4x8xf32>, tensor<4x8x4x8xf32>, tensor<i32>) -> tensor<2x4x8x4x8xf32>
      %142 = func.call @dynamic_update_index_in_dim_10(%iterArg_93, %133#9, %iterArg_83) : (tensor<2x4x8x4x8xf32>, tensor<4x8x4x8xf32>, tensor<i32>) -> tensor<2x4x8x4x8xf32>
      %143 = func.call @dynamic_update_index_in_dim_11(%iterArg_94, %133#10, %iterArg_83) : (tensor<2x4x4x8x8xf32>, tensor<4x4x8x8xf32>, tensor<i32>) -> tensor<2x4x4x8x8xf32>
      %144 = func.call @dynamic_update_index_in_dim_12(%iterArg_95, %133#11, %iterArg_83) : (tensor<2x4x4x8x1xf32>, tensor<4x4x8x1xf32>, tensor<i32>) -> tensor<2x4x4x8x1xf32>
      %145 = func.call @dynamic_update_index_in_dim_12(%iterArg_96, %133#12, %iterArg_83) : (tensor<2x4x4x8x1xf32>, tensor<4x4x8x1xf32>, tensor<i32>) -> tensor<2x4x4x8x1xf32>
      %146 = func.call @dynamic_update_index_in_dim_11(%iterArg_97, %133#13, %iterArg_83) : (tensor<2x4x4x8x8xf32>, tensor<4x4x8x8xf32>, tensor<i32>) -> tensor<2x4x4x8x8xf32>
      %147 = func.call @dynamic_update_index_in_dim_10(%iterArg_98, %133#14, %iterArg_83) : (tensor<2x4x8x4x8xf32>, tensor<4x8x4x8xf32>, tensor<i32>) -> tensor<2x4x8x4x8xf32>
      %148 = func.call @dynamic_update_index_in_dim(%iterArg_99, %133#15, %iterArg_83) : (tensor<2x4x8x32xf32>, tensor<4x8x32xf32>, tensor<i32>) -> tensor<2x4x8x32xf32>
      %149 = func.call @dynamic_update_index_in_dim(%iterArg_100, %133#16, %iterArg_83) : (tensor<2x4x8x32xf32>, tensor<4x8x32xf32>, tensor<i32>) -> tensor<2x4x8x32xf32>
      %150 = func.call @dynamic_update_index_in_dim_8(%iterArg_101, %133#17, %iterArg_83) : (tensor<2x4x8x1xf32>, tensor<4x8x1xf32>, tensor<i32>) -> tensor<2x4x8x1xf32>
      %151 = func.call @dynamic_update_index_in_dim_8(%iterArg_102, %133#18, %iterArg_83) : (tensor<2x4x8x1xf32>, tensor<4x8x1xf32>, tensor<i32>) -> tensor<2x4x8x1xf32>
      %152 = func.call @dynamic_update_index_in_dim(%iterArg_103, %133#19, %iterArg_83) : (tensor<2x4x8x32xf32>, tensor<4x8x32xf32>, tensor<i32>) -> tensor<2x4x8x32xf32>
      %153 = func.call @dynamic_update_index_in_dim_9(%iterArg_104, %133#20, %iterArg_83) : (tensor<2x1x1x32xf32>, tensor<1x1x32xf32>, tensor<i32>) -> tensor<2x1x1x32xf32>
      %154 = func.call @dynamic_update_index_in_dim(%iterArg_105, %133#21, %iterArg_83) : (tensor<2x4x8x32xf32>, tensor<4x8x32xf32>, tensor<i32>) -> tensor<2x4x8x32xf32>
      %155 = func.call @dynamic_update_index_in_dim(%iterArg_106, %133#22, %iterArg_83) : (tensor<2x4x8x32xf32>, tensor<4x8x32xf32>, tensor<i32>) -> tensor<2x4x8x32xf32>
      %156 = func.call @dynamic_update_index_in_dim_13(%iterArg_107, %133#23, %iterArg_83) : (tensor<2x4x8x64xf32>, tensor<4x8x64xf32>, tensor<i32>) -> tensor<2x4x8x64xf32>
      %157 = func.call @dynamic_update_index_in_dim_13(%iterArg_108, %133#24, %iterArg_83) : (tensor<2x4x8x64xf32>, tensor<4x8x64xf32>, tensor<i32>) -> tensor<2x4x8x64xf32>
      %158 = func.call @dynamic_update_index_in_dim_13(%iterArg_109, %133#25, %iterArg_83) : (tensor<2x4x8x64xf32>, tensor<4x8x64xf32>, tensor<i32>) -> tensor<2x4x8x64xf32>
      %159 = func.call @dynamic_update_index_in_dim_13(%iterArg_110, %133#26, %iterArg_83) : (tensor<2x4x8x64xf32>, tensor<4x8x64xf32>, tensor<i32>) -> tensor<2x4x8x64xf32>
      %c_111 = stablehlo.constant dense<1> : tensor<i32>
      %160 = stablehlo.add %iterArg_83, %c_111 : tensor<i32>
      stablehlo.return %iterArg, %iterArg_66, %iterArg_67, %iterArg_68, %iterArg_69, %iterArg_70, %iterArg_71, %iterArg_72, %iterArg_73, %iterArg_74, %iterArg_75, %iterArg_76, %iterArg_77, %iterArg_78, %iterArg_79, %iterArg_80, %iterArg_81, %iterArg_82, %160, %133#0, %134, %135, %136, %137, %138, %139, %140, %141, %142, %143, %144, %145, %146, %147, %148, %149, %150, %151, %152, %153, %154, %155, %156, %157, %158, %159 : tensor<2x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32xf32>, tensor<2x32x64xf32>, tensor<2x64x32xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<1x1x32xf32>, tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<1x1x32xf32>, tensor<i32>, tensor<4x8x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x32xf32>, tensor<2x1x1x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x4x8xf32>, tensor<2x4x8x4x8xf32>, tensor<2x4x4x8x8xf32>, tensor<2x4x4x8x1xf32>, tensor<2x4x4x8x1xf32>, tensor<2x4x4x8x8xf32>, tensor<2x4x8x4x8xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x32xf32>, tensor<2x1x1x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x64xf32>, tensor<2x4x8x64xf32>, tensor<2x4x8x64xf32>, tensor<2x4x8x64xf32>
    }
    %68 = stablehlo.transpose %1, dims = [1, 0] : (tensor<12x32xf32>) -> tensor<32x12xf32>
    %69 = stablehlo.dot_general %67#19, %68, contracting_dims = [2] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<32x12xf32>) -> tensor<4x8x12xf32>
    %70:3 = call @log_softmax(%69) : (tensor<4x8x12xf32>) -> (tensor<4x8x12xf32>, tensor<4x8x12xf32>, tensor<4x8x1xf32>)
    %71 = stablehlo.slice %arg9 [0:4, 1:9] : (tensor<4x9xi32>) -> tensor<4x8xi32>
    %72 = stablehlo.broadcast_in_dim %71, dims = [0, 1] : (tensor<4x8xi32>) -> tensor<4x8x1xi32>
    %73:2 = call @take_along_axis(%70#0, %72) : (tensor<4x8x12xf32>, tensor<4x8x1xi32>) -> (tensor<4x8x1xf32>, tensor<4x8x1x1xi32>)
    %cst_43 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %74 = stablehlo.reduce(%73#0 init: %cst_43) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<4x8x1xf32>, tensor<f32>) -> tensor<f32>
    %cst_44 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %75 = stablehlo.divide %74, %cst_44 : tensor<f32>
    %76 = stablehlo.negate %75 : tensor<f32>
    %cst_45 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %77 = stablehlo.negate %cst_45 : tensor<f32>
    %cst_46 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %78 = stablehlo.divide %77, %cst_46 : tensor<f32>
    %79 = stablehlo.broadcast_in_dim %78, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %80 = call @take_along_axis_14(%73#1, %79) : (tensor<4x8x1x1xi32>, tensor<4x8x1xf32>) -> tensor<4x8x12xf32>
    %81 = call @log_softmax_15(%70#1, %70#2, %80) : (tensor<4x8x12xf32>, tensor<4x8x1xf32>, tensor<4x8x12xf32>) -> tensor<4x8x12xf32>
    %82 = stablehlo.dot_general %81, %67#19, contracting_dims = [0, 1] x [0, 1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x12xf32>, tensor<4x8x32xf32>) -> tensor<12x32xf32>
    %83 = stablehlo.transpose %82, dims = [1, 0] : (tensor<12x32xf32>) -> tensor<32x12xf32>
    %84 = stablehlo.dot_general %81, %68, contracting_dims = [2] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x12xf32>, tensor<32x12xf32>) -> tensor<4x8x32xf32>
    %85 = stablehlo.transpose %83, dims = [1, 0] : (tensor<32x12xf32>) -> tensor<12x32xf32>
    %cst_47 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %86 = stablehlo.broadcast_in_dim %cst_47, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
    %cst_48 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %87 = stablehlo.broadcast_in_dim %cst_48, dims = [] : (tensor<f32>) -> tensor<2x32x32xf32>
    %cst_49 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %88 = stablehlo.broadcast_in_dim %cst_49, dims = [] : (tensor<f32>) -> tensor<2x32x32xf32>
    %cst_50 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %89 = stablehlo.broadcast_in_dim %cst_50, dims = [] : (tensor<f32>) -> tensor<2x32x32xf32>
    %cst_51 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %90 = stablehlo.broadcast_in_dim %cst_51, dims = [] : (tensor<f32>) -> tensor<2x32x32xf32>
    %cst_52 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %91 = stablehlo.broadcast_in_dim %cst_52, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
    %cst_53 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %92 = stablehlo.broadcast_in_dim %cst_53, dims = [] : (tensor<f32>) -> tensor<2x32x64xf32>
    %cst_54 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %93 = stablehlo.broadcast_in_dim %cst_54, dims = [] : (tensor<f32>) -> tensor<2x64x32xf32>
    %c_55 = stablehlo.constant dense<0> : tensor<i32>
    %94:50 = stablehlo.while(%iterArg = %67#20, %iterArg_66 = %67#21, %iterArg_67 = %67#22, %iterArg_68 = %67#23, %iterArg_69 = %67#24, %iterArg_70 = %67#25, %iterArg_71 = %5, %iterArg_72 = %67#26, %iterArg_73 = %7, %iterArg_74 = %9, %iterArg_75 = %67#27, %iterArg_76 = %67#28, %iterArg_77 = %67#29, %iterArg_78 = %67#30, %iterArg_79 = %67#31, %iterArg_80 = %67#32, %iterArg_81 = %67#33, %iterArg_82 = %11, %iterArg_83 = %67#34, %iterArg_84 = %67#35, %iterArg_85 = %67#36, %iterArg_86 = %67#37, %iterArg_87 = %67#38, %iterArg_88 = %67#39, %iterArg_89 = %67#40, %iterArg_90 = %15, %iterArg_91 = %67#41, %iterArg_92 = %67#42, %iterArg_93 = %67#43, %iterArg_94 = %67#44, %iterArg_95 = %17, %iterArg_96 = %67#45, %iterArg_97 = %28#0, %iterArg_98 = %28#1, %iterArg_99 = %28#2, %iterArg_100 = %37#0, %iterArg_101 = %37#1, %iterArg_102 = %39#0, %iterArg_103 = %39#1, %iterArg_104 = %39#2, %iterArg_105 = %c_55, %iterArg_106 = %84, %iterArg_107 = %86, %iterArg_108 = %87, %iterArg_109 = %88, %iterArg_110 = %89, %iterArg_111 = %90, %iterArg_112 = %91, %iterArg_113 = %92, %iterArg_114 = %93) : tensor<2x4x8x32xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x32xf32>, tensor<2x1x1x32xf32>, tensor<2x4x8x32xf32>, tensor<2x32x32xf32>, tensor<2x4x8x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x4x8x4x8xf32>, tensor<2x4x8x4x8xf32>, tensor<2x4x4x8x8xf32>, tensor<2x4x4x8x1xf32>, tensor<2x4x4x8x1xf32>, tensor<2x4x4x8x8xf32>, tensor<2x4x8x4x8xf32>, tensor<2x32x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x32xf32>, tensor<2x1x1x32xf32>, tensor<2x4x8x32xf32>, tensor<2x32x64xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x64xf32>, tensor<2x4x8x64xf32>, tensor<2x4x8x64xf32>, tensor<2x64x32xf32>, tensor<2x4x8x64xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<i32>, tensor<4x8x32xf32>, tensor<2x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32xf32>, tensor<2x32x64xf32>, tensor<2x64x32xf32>
    cond {
      %c_115 = stablehlo.constant dense<2> : tensor<i32>
      %125 = stablehlo.compare LT, %iterArg_105, %c_115, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %125 : tensor<i1>
    } do {
      %c_115 = stablehlo.constant dense<2> : tensor<i32>
      %125 = stablehlo.subtract %c_115, %iterArg_105 : tensor<i32>
      %c_116 = stablehlo.constant dense<1> : tensor<i32>
      %126 = stablehlo.subtract %125, %c_116 : tensor<i32>
      %127 = func.call @dynamic_index_in_dim_16(%iterArg, %126) : (tensor<2x4x8x32xf32>, tensor<i32>) -> tensor<4x8x32xf32>
      %128 = func.call @dynamic_index_in_dim_17(%iterArg_66, %126) : (tensor<2x4x8x1xf32>, tensor<i32>) -> tensor<4x8x1xf32>
      %129 = func.call @dynamic_index_in_dim_17(%iterArg_67, %126) : (tensor<2x4x8x1xf32>, tensor<i32>) -> tensor<4x8x1xf32>
      %130 = func.call @dynamic_index_in_dim_16(%iterArg_68, %126) : (tensor<2x4x8x32xf32>, tensor<i32>) -> tensor<4x8x32xf32>
      %131 = func.call @dynamic_index_in_dim_18(%iterArg_69, %126) : (tensor<2x1x1x32xf32>, tensor<i32>) -> tensor<1x1x32xf32>
      %132 = func.call @dynamic_index_in_dim_16(%iterArg_70, %126) : (tensor<2x4x8x32xf32>, tensor<i32>) -> tensor<4x8x32xf32>
      %133 = func.call @dynamic_index_in_dim_1(%iterArg_71, %126) : (tensor<2x32x32xf32>, tensor<i32>) -> tensor<32x32xf32>
      %134 = func.call @dynamic_index_in_dim_16(%iterArg_72, %126) : (tensor<2x4x8x32xf32>, tensor<i32>) -> tensor<4x8x32xf32>
      %135 = func.call @dynamic_index_in_dim_1(%iterArg_73, %126) : (tensor<2x32x32xf32>, tensor<i32>) -> tensor<32x32xf32>
      %136 = func.call @dynamic_index_in_dim_1(%iterArg_74, %126) : (tensor<2x32x32xf32>, tensor<i32>) -> tensor<32x32xf32>
      %137 = func.call @dynamic_index_in_dim_19(%iterArg_75, %126) : (tensor<2x4x8x4x8xf32>, tensor<i32>) -> tensor<4x8x4x8xf32>
      %138 = func.call @dynamic_index_in_dim_19(%iterArg_76, %126) : (tensor<2x4x8x4x8xf32>, tensor<i32>) -> tensor<4x8x4x8xf32>
      %139 = func.call @dynamic_index_in_dim_20(%iterArg_77, %126) : (tensor<2x4x4x8x8xf32>, tensor<i32>) -> tensor<4x4x8x8xf32>
      %140 = func.call @dynamic_index_in_dim_21(%iterArg_78, %126) : (tensor<2x4x4x8x1xf32>, tensor<i32>) -> tensor<4x4x8x1xf32>
      %141 = func.call @dynamic_index_in_dim_21(%iterArg_79, %126) : (tensor<2x4x4x8x1xf32>, tensor<i32>) -> tensor<4x4x8x1xf32>
      %142 = func.call @dynamic_index_in_dim_20(%iterArg_80, %126) : (tensor<2x4x4x8x8xf32>, tensor<i32>) -> tensor<4x4x8x8xf32>
      %143 = func.call @dynamic_index_in_dim_19(%iterArg_81, %126) : (tensor<2x4x8x4x8xf32>, tensor<i32>) -> tensor<4x8x4x8xf32>
      %144 = func.call @dynamic_index_in_dim_1(%iterArg_82, %126) : (tensor<2x32x32xf32>, tensor<i32>) -> tensor<32x32xf32>
      %145 = func.call @dynamic_index_in_dim_16(%iterArg_83, %126) : (tensor<2x4x8x32xf32>, tensor<i32>) -> tensor<4x8x32xf32>
      %146 = func.call @dynamic_index_in_dim_16(%iterArg_84, %126) : (tensor<2x4x8x32xf32>, tensor<i32>) -> tensor<4x8x32xf32>
      %147 = func.call @dynamic_index_in_dim_17(%iterArg_85, %126) : (tensor<2x4x8x1xf32>, tensor<i32>) -> tensor<4x8x1xf32>
      %148 = func.call @dynamic_index_in_dim_17(%iterArg_86, %126) : (tensor<2x4x8x1xf32>, tensor<i32>) -> tensor<4x8x1xf32>
      %149 = func.call @dynamic_index_in_dim_16(%iterArg_87, %126) : (tensor<2x4x8x32xf32>, tensor<i32>) -> tensor<4x8x32xf32>
      %150 = func.call @dynamic_index_in_dim_18(%iterArg_88, %126) : (tensor<2x1x1x32xf32>, tensor<i32>) -> tensor<1x1x32xf32>
      %151 = func.call @dynamic_index_in_dim_16(%iterArg_89, %126) : (tensor<2x4x8x32xf32>, tensor<i32>) -> tensor<4x8x32xf32>
      %152 = func.call @dynamic_index_in_dim_2(%iterArg_90, %126) : (tensor<2x32x64xf32>, tensor<i32>) -> tensor<32x64xf32>
      %153 = func.call @dynamic_index_in_dim_16(%iterArg_91, %126) : (tensor<2x4x8x32xf32>, tensor<i32>) -> tensor<4x8x32xf32>
      %154 = func.call @dynamic_index_in_dim_22(%iterArg_92, %126) : (tensor<2x4x8x64xf32>, tensor<i32>) -> tensor<4x8x64xf32>
      %155 = func.call @dynamic_index_in_dim_22(%iterArg_93, %126) : (tensor<2x4x8x64xf32>, tensor<i32>) -> tensor<4x8x64xf32>
      %156 = func.call @dynamic_index_in_dim_22(%iterArg_94, %126) : (tensor<2x4x8x64xf32>, tensor<i32>) -> tensor<4x8x64xf32>
      %157 = func.call @dynamic_index_in_dim_3(%iterArg_95, %126) : (tensor<2x64x32xf32>, tensor<i32>) -> tensor<64x32xf32>
      %158 = func.call @dynamic_index_in_dim_22(%iterArg_96, %126) : (tensor<2x4x8x64xf32>, tensor<i32>) -> tensor<4x8x64xf32>
      %159:9 = func.call @closed_call_23(%iterArg_97, %iterArg_98, %iterArg_99, %iterArg_100, %iterArg_101, %iterArg_102, %iterArg_103, %iterArg_104, %iterArg_106, %127, %128, %129, %130, %131, %132, %133, %134, %135, %136, %137, %138, %139, %140, %141, %142, %143, %144, %145, %146, %147, %148, %149, %150, %151, %152, %153, %154, %155, %156, %157, %158) : (tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x1xf32>, tensor<4x8x1xf32>, tensor<4x8x32xf32>, tensor<1x1x32xf32>, tensor<4x8x32xf32>, tensor<32x32xf32>, tensor<4x8x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<4x8x4x8xf32>, tensor<4x8x4x8xf32>, tensor<4x4x8x8xf32>, tensor<4x4x8x1xf32>, tensor<4x4x8x1xf32>, tensor<4x4x8x8xf32>, tensor<4x8x4x8xf32>, tensor<32x32xf32>, tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x1xf32>, tensor<4x8x1xf32>, tensor<4x8x32xf32>, tensor<1x1x32xf32>, tensor<4x8x32xf32>, tensor<32x64xf32>, tensor<4x8x32xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<64x32xf32>, tensor<4x8x64xf32>) -> (tensor<4x8x32xf32>, tensor<32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32xf32>, tensor<32x64xf32>, tensor<64x32xf32>)
      %160 = func.call @dynamic_update_index_in_dim_28(%iterArg_107, %159#1, %126) : (tensor<2x32xf32>, tensor<32xf32>, tensor<i32>) -> tensor<2x32xf32>
      %161 = func.call @dynamic_update_index_in_dim_29(%iterArg_108, %159#2, %126) : (tensor<2x32x32xf32>, tensor<32x32xf32>, tensor<i32>) -> tensor<2x32x32xf32>
      %162 = func.call @dynamic_update_index_in_dim_29(%iterArg_109, %159#3, %126) : (tensor<2x32x32xf32>, tensor<32x32xf32>, tensor<i32>) -> tensor<2x32x32xf32>
      %163 = func.call @dynamic_update_index_in_dim_29(%iterArg_110, %159#4, %126) : (tensor<2x32x32xf32>, tensor<32x32xf32>, tensor<i32>) -> tensor<2x32x32xf32>
      %164 = func.call @dynamic_update_index_in_dim_29(%iterArg_111, %159#5, %126) : (tensor<2x32x32xf32>, tensor<32x32xf32>, tensor<i32>) -> tensor<2x32x32xf32>
      %165 = func.call @dynamic_update_index_in_dim_28(%iterArg_112, %159#6, %126) : (tensor<2x32xf32>, tensor<32xf32>, tensor<i32>) -> tensor<2x32xf32>
      %166 = func.call @dynamic_update_index_in_dim_30(%iterArg_113, %159#7, %126) : (tensor<2x32x64xf32>, tensor<32x64xf32>, tensor<i32>) -> tensor<2x32x64xf32>
      %167 = func.call @dynamic_update_index_in_dim_31(%iterArg_114, %159#8, %126) : (tensor<2x64x32xf32>, tensor<64x32xf32>, tensor<i32>) -> tensor<2x64x32xf32>
      %c_117 = stablehlo.constant dense<1> : tensor<i32>
      %168 = stablehlo.add %iterArg_105, %c_117 : tensor<i32>
      stablehlo.return %iterArg, %iterArg_66, %iterArg_67, %iterArg_68, %iterArg_69, %iterArg_70, %iterArg_71, %iterArg_72, %iterArg_73, %iterArg_74, %iterArg_75, %iterArg_76, %iterArg_77, %iterArg_78, %iterArg_79, %iterArg_80, %iterArg_81, %iterArg_82, %iterArg_83, %iterArg_84, %iterArg_85, %iterArg_86, %iterArg_87, %iterArg_88, %iterArg_89, %iterArg_90, %iterArg_91, %iterArg_92, %iterArg_93, %iterArg_94, %iterArg_95, %iterArg_96, %iterArg_97, %iterArg_98, %iterArg_99, %iterArg_100, %iterArg_101, %iterArg_102, %iterArg_103, %iterArg_104, %168, %159#0, %160, %161, %162, %163, %164, %165, %166, %167 : tensor<2x4x8x32xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x32xf32>, tensor<2x1x1x32xf32>, tensor<2x4x8x32xf32>, tensor<2x32x32xf32>, tensor<2x4x8x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x4x8x4x8xf32>, tensor<2x4x8x4x8xf32>, tensor<2x4x4x8x8xf32>, tensor<2x4x4x8x1xf32>, tensor<2x4x4x8x1xf32>, tensor<2x4x4x8x8xf32>, tensor<2x4x8x4x8xf32>, tensor<2x32x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x1xf32>, tensor<2x4x8x32xf32>, tensor<2x1x1x32xf32>, tensor<2x4x8x32xf32>, tensor<2x32x64xf32>, tensor<2x4x8x32xf32>, tensor<2x4x8x64xf32>, tensor<2x4x8x64xf32>, tensor<2x4x8x64xf32>, tensor<2x64x32xf32>, tensor<2x4x8x64xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<i32>, tensor<4x8x32xf32>, tensor<2x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32xf32>, tensor<2x32x64xf32>, tensor<2x64x32xf32>
    }
    %cst_56 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %95 = stablehlo.broadcast_in_dim %cst_56, dims = [] : (tensor<f32>) -> tensor<12x32xf32>
    %96 = "stablehlo.scatter"(%95, %24, %94#41) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>, unique_indices = false}> ({
    ^bb0(%arg10: tensor<f32>, %arg11: tensor<f32>):
      %125 = stablehlo.add %arg10, %arg11 : tensor<f32>
      stablehlo.return %125 : tensor<f32>
    }) : (tensor<12x32xf32>, tensor<4x8x1xi32>, tensor<4x8x32xf32>) -> tensor<12x32xf32>
    %97 = stablehlo.add %85, %96 : tensor<12x32xf32>
    %cst_57 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %98 = stablehlo.broadcast_in_dim %cst_57, dims = [] : (tensor<f32>) -> tensor<12x32xf32>
    %99 = stablehlo.multiply %98, %97 : tensor<12x32xf32>
    %100 = stablehlo.subtract %1, %99 : tensor<12x32xf32>
    %cst_58 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %101 = stablehlo.broadcast_in_dim %cst_58, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
    %102 = stablehlo.multiply %101, %94#42 : tensor<2x32xf32>
    %103 = stablehlo.subtract %3, %102 : tensor<2x32xf32>
    %cst_59 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %104 = stablehlo.broadcast_in_dim %cst_59, dims = [] : (tensor<f32>) -> tensor<2x32x32xf32>
    %105 = stablehlo.multiply %104, %94#43 : tensor<2x32x32xf32>
    %106 = stablehlo.subtract %5, %105 : tensor<2x32x32xf32>
    %cst_60 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %107 = stablehlo.broadcast_in_dim %cst_60, dims = [] : (tensor<f32>) -> tensor<2x32x32xf32>
    %108 = stablehlo.multiply %107, %94#44 : tensor<2x32x32xf32>
    %109 = stablehlo.subtract %7, %108 : tensor<2x32x32xf32>
    %cst_61 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %110 = stablehlo.broadcast_in_dim %cst_61, dims = [] : (tensor<f32>) -> tensor<2x32x32xf32>
    %111 = stablehlo.multiply %110, %94#45 : tensor<2x32x32xf32>
    %112 = stablehlo.subtract %9, %111 : tensor<2x32x32xf32>
    %cst_62 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %113 = stablehlo.broadcast_in_dim %cst_62, dims = [] : (tensor<f32>) -> tensor<2x32x32xf32>
    %114 = stablehlo.multiply %113, %94#46 : tensor<2x32x32xf32>
    %115 = stablehlo.subtract %11, %114 : tensor<2x32x32xf32>
    %cst_63 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %116 = stablehlo.broadcast_in_dim %cst_63, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
    %117 = stablehlo.multiply %116, %94#47 : tensor<2x32xf32>
    %118 = stablehlo.subtract %13, %117 : tensor<2x32xf32>
    %cst_64 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %119 = stablehlo.broadcast_in_dim %cst_64, dims = [] : (tensor<f32>) -> tensor<2x32x64xf32>
    %120 = stablehlo.multiply %119, %94#48 : tensor<2x32x64xf32>
    %121 = stablehlo.subtract %15, %120 : tensor<2x32x64xf32>
    %cst_65 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %122 = stablehlo.broadcast_in_dim %cst_65, dims = [] : (tensor<f32>) -> tensor<2x64x32xf32>
    %123 = stablehlo.multiply %122, %94#49 : tensor<2x64x32xf32>
    %124 = stablehlo.subtract %17, %123 : tensor<2x64x32xf32>
    return %76, %100, %103, %106, %109, %112, %115, %118, %121, %124 : tensor<f32>, tensor<12x32xf32>, tensor<2x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32x32xf32>, tensor<2x32xf32>, tensor<2x32x64xf32>, tensor<2x64x32xf32>
  }
  func.func private @_var(%arg0: tensor<i32>) -> (tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<4x8x1xf32>) {
    %0 = stablehlo.convert %arg0 : (tensor<i32>) -> tensor<f32>
    %cst = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %1 = stablehlo.subtract %cst, %0 : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %2 = stablehlo.compare GT, %1, %cst_0, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %cst_1 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %3:2 = call @_where(%2, %cst_1) : (tensor<i1>, tensor<f32>) -> (tensor<4x8x1xf32>, tensor<4x8x1xf32>)
    return %1, %2, %3#0, %3#1 : tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<4x8x1xf32>
  }
  func.func private @_where(%arg0: tensor<i1>, %arg1: tensor<f32>) -> (tensor<4x8x1xf32>, tensor<4x8x1xf32>) {
    %0 = stablehlo.convert %arg1 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    return %2, %1 : tensor<4x8x1xf32>, tensor<4x8x1xf32>
  }
  func.func private @tril(%arg0: tensor<8x8xi1>) -> tensor<8x8xi1> {
    %0 = stablehlo.iota dim = 0 : tensor<8x8xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<8x8xi32>
    %2 = stablehlo.add %0, %1 : tensor<8x8xi32>
    %3 = stablehlo.iota dim = 1 : tensor<8x8xi32>
    %4 = stablehlo.compare GE, %2, %3, SIGNED : (tensor<8x8xi32>, tensor<8x8xi32>) -> tensor<8x8xi1>
    %c_0 = stablehlo.constant dense<false> : tensor<i1>
    %5 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i1>) -> tensor<8x8xi1>
    %6 = stablehlo.select %4, %arg0, %5 : tensor<8x8xi1>, tensor<8x8xi1>
    return %6 : tensor<8x8xi1>
  }
  func.func private @_where_0(%arg0: tensor<4x1x8x8xi1>, %arg1: tensor<f32>) -> (tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>, tensor<4x4x8x8xf32>) {
    %0 = stablehlo.convert %arg1 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [0, 1, 2, 3] : (tensor<4x1x8x8xi1>) -> tensor<4x4x8x8xi1>
    %2 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4x4x8x8xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x4x8x8xf32>
    return %1, %3, %2 : tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>, tensor<4x4x8x8xf32>
  }
  func.func private @silu() {
    return
  }
  func.func private @dynamic_index_in_dim(%arg0: tensor<2x32xf32>, %arg1: tensor<i32>) -> tensor<32xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, sizes = [1, 32] : (tensor<2x32xf32>, tensor<i32>, tensor<i32>) -> tensor<1x32xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x32xf32>) -> tensor<32xf32>
    return %1 : tensor<32xf32>
  }
  func.func private @dynamic_index_in_dim_1(%arg0: tensor<2x32x32xf32>, %arg1: tensor<i32>) -> tensor<32x32xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 32, 32] : (tensor<2x32x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x32x32xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x32x32xf32>) -> tensor<32x32xf32>
    return %1 : tensor<32x32xf32>
  }
  func.func private @dynamic_index_in_dim_2(%arg0: tensor<2x32x64xf32>, %arg1: tensor<i32>) -> tensor<32x64xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 32, 64] : (tensor<2x32x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x32x64xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x32x64xf32>) -> tensor<32x64xf32>
    return %1 : tensor<32x64xf32>
  }
  func.func private @dynamic_index_in_dim_3(%arg0: tensor<2x64x32xf32>, %arg1: tensor<i32>) -> tensor<64x32xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 64, 32] : (tensor<2x64x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x64x32xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x64x32xf32>) -> tensor<64x32xf32>
    return %1 : tensor<64x32xf32>
  }
  func.func private @closed_call(%arg0: tensor<f32>, %arg1: tensor<i1>, %arg2: tensor<4x8x1xf32>, %arg3: tensor<1x1x32xf32>, %arg4: tensor<4x4x8x8xi1>, %arg5: tensor<4x4x8x8xf32>, %arg6: tensor<f32>, %arg7: tensor<i1>, %arg8: tensor<4x8x1xf32>, %arg9: tensor<1x1x32xf32>, %arg10: tensor<4x8x32xf32>, %arg11: tensor<32xf32>, %arg12: tensor<32x32xf32>, %arg13: tensor<32x32xf32>, %arg14: tensor<32x32xf32>, %arg15: tensor<32x32xf32>, %arg16: tensor<32xf32>, %arg17: tensor<32x64xf32>, %arg18: tensor<64x32xf32>) -> (tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x1xf32>, tensor<4x8x1xf32>, tensor<4x8x32xf32>, tensor<1x1x32xf32>, tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x4x8xf32>, tensor<4x8x4x8xf32>, tensor<4x4x8x8xf32>, tensor<4x4x8x1xf32>, tensor<4x4x8x1xf32>, tensor<4x4x8x8xf32>, tensor<4x8x4x8xf32>, tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x1xf32>, tensor<4x8x1xf32>, tensor<4x8x32xf32>, tensor<1x1x32xf32>, tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg10 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4x8x32xf32>, tensor<f32>) -> tensor<4x8xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8x1xf32>
    %cst_0 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<4x8x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<4x8x1xf32>) -> tensor<4x8x32xf32>
    %5 = stablehlo.subtract %arg10, %4 : tensor<4x8x32xf32>
    %6:2 = call @_var_4(%arg10, %arg0, %arg1, %arg2) : (tensor<4x8x32xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>) -> (tensor<4x8x1xf32>, tensor<4x8x32xf32>)
    %cst_1 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %8 = stablehlo.add %6#0, %7 : tensor<4x8x1xf32>
    %9 = stablehlo.rsqrt %8 : tensor<4x8x1xf32>
    %10 = stablehlo.divide %9, %8 : tensor<4x8x1xf32>
    %cst_2 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %11 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %12 = stablehlo.multiply %11, %10 : tensor<4x8x1xf32>
    %13 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<4x8x1xf32>) -> tensor<4x8x32xf32>
    %14 = stablehlo.multiply %5, %13 : tensor<4x8x32xf32>
    %15 = stablehlo.broadcast_in_dim %arg11, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<4x8x32xf32>
    %17 = stablehlo.multiply %14, %16 : tensor<4x8x32xf32>
    %18 = stablehlo.broadcast_in_dim %arg3, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<4x8x32xf32>
    %19 = stablehlo.add %17, %18 : tensor<4x8x32xf32>
    %20 = stablehlo.dot_general %19, %arg12, contracting_dims = [2] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<32x32xf32>) -> tensor<4x8x32xf32>
    %21 = stablehlo.reshape %20 : (tensor<4x8x32xf32>) -> tensor<4x8x4x8xf32>
    %22 = stablehlo.dot_general %19, %arg13, contracting_dims = [2] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<32x32xf32>) -> tensor<4x8x32xf32>
    %23 = stablehlo.reshape %22 : (tensor<4x8x32xf32>) -> tensor<4x8x4x8xf32>
    %24 = stablehlo.dot_general %19, %arg14, contracting_dims = [2] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<32x32xf32>) -> tensor<4x8x32xf32>
    %25 = stablehlo.reshape %24 : (tensor<4x8x32xf32>) -> tensor<4x8x4x8xf32>
    %26 = stablehlo.dot_general %21, %23, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<4x8x4x8xf32>, tensor<4x8x4x8xf32>) -> tensor<4x4x8x8xf32>
    %cst_3 = stablehlo.constant dense<2.82842708> : tensor<f32>
    %27 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<4x4x8x8xf32>
    %28 = stablehlo.divide %26, %27 : tensor<4x4x8x8xf32>
    %29 = call @_where_6(%28, %arg4, %arg5) : (tensor<4x4x8x8xf32>, tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>) -> tensor<4x4x8x8xf32>
    %cst_4 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %30 = stablehlo.reduce(%29 init: %cst_4) applies stablehlo.maximum across dimensions = [3] : (tensor<4x4x8x8xf32>, tensor<f32>) -> tensor<4x4x8xf32>
    %cst_5 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<4x4x8xf32>
    %32 = stablehlo.maximum %31, %30 : tensor<4x4x8xf32>
    %33 = stablehlo.broadcast_in_dim %32, dims = [0, 1, 2] : (tensor<4x4x8xf32>) -> tensor<4x4x8x1xf32>
    %34 = stablehlo.broadcast_in_dim %33, dims = [0, 1, 2, 3] : (tensor<4x4x8x1xf32>) -> tensor<4x4x8x8xf32>
    %35 = stablehlo.subtract %29, %34 : tensor<4x4x8x8xf32>
    %36 = stablehlo.exponential %35 : tensor<4x4x8x8xf32>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %37 = stablehlo.reduce(%36 init: %cst_6) applies stablehlo.add across dimensions = [3] : (tensor<4x4x8x8xf32>, tensor<f32>) -> tensor<4x4x8xf32>
    %38 = stablehlo.broadcast_in_dim %37, dims = [0, 1, 2] : (tensor<4x4x8xf32>) -> tensor<4x4x8x1xf32>
    %39 = stablehlo.broadcast_in_dim %38, dims = [0, 1, 2, 3] : (tensor<4x4x8x1xf32>) -> tensor<4x4x8x8xf32>
    %40 = stablehlo.divide %36, %39 : tensor<4x4x8x8xf32>
    %41 = stablehlo.multiply %38, %38 : tensor<4x4x8x1xf32>
    %cst_7 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %42 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<4x4x8x1xf32>
    %43 = stablehlo.divide %42, %41 : tensor<4x4x8x1xf32>
    %44 = stablehlo.dot_general %25, %40, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [HIGHEST, HIGHEST] : (tensor<4x8x4x8xf32>, tensor<4x4x8x8xf32>) -> tensor<4x4x8x8xf32>
    %45 = stablehlo.transpose %44, dims = [0, 3, 1, 2] : (tensor<4x4x8x8xf32>) -> tensor<4x8x4x8xf32>
    %46 = stablehlo.reshape %45 : (tensor<4x8x4x8xf32>) -> tensor<4x8x32xf32>
    %47 = stablehlo.dot_general %46, %arg15, contracting_dims = [2] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<32x32xf32>) -> tensor<4x8x32xf32>
    %48 = stablehlo.add %arg10, %47 : tensor<4x8x32xf32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %49 = stablehlo.reduce(%48 init: %cst_8) applies stablehlo.add across dimensions = [2] : (tensor<4x8x32xf32>, tensor<f32>) -> tensor<4x8xf32>
    %50 = stablehlo.broadcast_in_dim %49, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8x1xf32>
    %cst_9 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %51 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %52 = stablehlo.divide %50, %51 : tensor<4x8x1xf32>
    %53 = stablehlo.broadcast_in_dim %52, dims = [0, 1, 2] : (tensor<4x8x1xf32>) -> tensor<4x8x32xf32>
    %54 = stablehlo.subtract %48, %53 : tensor<4x8x32xf32>
    %55:2 = call @_var_4(%48, %arg6, %arg7, %arg8) : (tensor<4x8x32xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>) -> (tensor<4x8x1xf32>, tensor<4x8x32xf32>)
    %cst_10 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %56 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %57 = stablehlo.add %55#0, %56 : tensor<4x8x1xf32>
    %58 = stablehlo.rsqrt %57 : tensor<4x8x1xf32>
    %59 = stablehlo.divide %58, %57 : tensor<4x8x1xf32>
    %cst_11 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %60 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %61 = stablehlo.multiply %60, %59 : tensor<4x8x1xf32>
    %62 = stablehlo.broadcast_in_dim %58, dims = [0, 1, 2] : (tensor<4x8x1xf32>) -> tensor<4x8x32xf32>
    %63 = stablehlo.multiply %54, %62 : tensor<4x8x32xf32>
    %64 = stablehlo.broadcast_in_dim %arg16, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %65 = stablehlo.broadcast_in_dim %64, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<4x8x32xf32>
    %66 = stablehlo.multiply %63, %65 : tensor<4x8x32xf32>
    %67 = stablehlo.broadcast_in_dim %arg9, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<4x8x32xf32>
    %68 = stablehlo.add %66, %67 : tensor<4x8x32xf32>
    %69 = stablehlo.dot_general %68, %arg17, contracting_dims = [2] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<32x64xf32>) -> tensor<4x8x64xf32>
    %70:3 = call @silu_7(%69) : (tensor<4x8x64xf32>) -> (tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>)
    %71 = stablehlo.dot_general %70#0, %arg18, contracting_dims = [2] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x8x64xf32>, tensor<64x32xf32>) -> tensor<4x8x32xf32>
    %72 = stablehlo.add %48, %71 : tensor<4x8x32xf32>
    return %72, %6#1, %12, %9, %5, %15, %14, %19, %23, %21, %36, %38, %43, %40, %25, %46, %55#1, %61, %58, %54, %64, %63, %68, %70#1, %70#2, %69, %70#0 : tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x1xf32>, tensor<4x8x1xf32>, tensor<4x8x32xf32>, tensor<1x1x32xf32>, tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x4x8xf32>, tensor<4x8x4x8xf32>, tensor<4x4x8x8xf32>, tensor<4x4x8x1xf32>, tensor<4x4x8x1xf32>, tensor<4x4x8x8xf32>, tensor<4x8x4x8xf32>, tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x1xf32>, tensor<4x8x1xf32>, tensor<4x8x32xf32>, tensor<1x1x32xf32>, tensor<4x8x32xf32>, tensor<4x8x32xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>
  }
  func.func private @_var_4(%arg0: tensor<4x8x32xf32>, %arg1: tensor<f32>, %arg2: tensor<i1>, %arg3: tensor<4x8x1xf32>) -> (tensor<4x8x1xf32>, tensor<4x8x32xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4x8x32xf32>, tensor<f32>) -> tensor<4x8xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8x1xf32>
    %cst_0 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<4x8x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<4x8x1xf32>) -> tensor<4x8x32xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<4x8x32xf32>
    %6 = chlo.square %5 : tensor<4x8x32xf32> -> tensor<4x8x32xf32>
    %cst_1 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<4x8x32xf32>
    %8 = stablehlo.multiply %7, %5 : tensor<4x8x32xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.reduce(%6 init: %cst_2) applies stablehlo.add across dimensions = [2] : (tensor<4x8x32xf32>, tensor<f32>) -> tensor<4x8xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8x1xf32>
    %11 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %12 = stablehlo.divide %10, %11 : tensor<4x8x1xf32>
    %13 = call @_where_5(%12, %arg2, %arg3) : (tensor<4x8x1xf32>, tensor<i1>, tensor<4x8x1xf32>) -> tensor<4x8x1xf32>
    return %13, %8 : tensor<4x8x1xf32>, tensor<4x8x32xf32>
  }
  func.func private @_where_5(%arg0: tensor<4x8x1xf32>, %arg1: tensor<i1>, %arg2: tensor<4x8x1xf32>) -> tensor<4x8x1xf32> {
    %0 = stablehlo.select %arg1, %arg0, %arg2 : tensor<i1>, tensor<4x8x1xf32>
    return %0 : tensor<4x8x1xf32>
  }
  func.func private @_where_6(%arg0: tensor<4x4x8x8xf32>, %arg1: tensor<4x4x8x8xi1>, %arg2: tensor<4x4x8x8xf32>) -> tensor<4x4x8x8xf32> {
    %0 = stablehlo.select %arg1, %arg0, %arg2 : tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>
    return %0 : tensor<4x4x8x8xf32>
  }
  func.func private @silu_7(%arg0: tensor<4x8x64xf32>) -> (tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>) {
    %0 = stablehlo.negate %arg0 : tensor<4x8x64xf32>
    %1 = stablehlo.exponential %0 : tensor<4x8x64xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x8x64xf32>
    %3 = stablehlo.add %2, %1 : tensor<4x8x64xf32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x8x64xf32>
    %5 = stablehlo.divide %4, %3 : tensor<4x8x64xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<4x8x64xf32>
    %7 = stablehlo.subtract %6, %5 : tensor<4x8x64xf32>
    %8 = stablehlo.multiply %5, %7 : tensor<4x8x64xf32>
    %9 = stablehlo.multiply %arg0, %5 : tensor<4x8x64xf32>
    return %9, %8, %5 : tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>
  }
  func.func private @dynamic_update_index_in_dim(%arg0: tensor<2x4x8x32xf32>, %arg1: tensor<4x8x32xf32>, %arg2: tensor<i32>) -> tensor<2x4x8x32xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2, 3] : (tensor<4x8x32xf32>) -> tensor<1x4x8x32xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0, %c_1 : (tensor<2x4x8x32xf32>, tensor<1x4x8x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x4x8x32xf32>
    return %1 : tensor<2x4x8x32xf32>
  }
  func.func private @dynamic_update_index_in_dim_8(%arg0: tensor<2x4x8x1xf32>, %arg1: tensor<4x8x1xf32>, %arg2: tensor<i32>) -> tensor<2x4x8x1xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2, 3] : (tensor<4x8x1xf32>) -> tensor<1x4x8x1xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0, %c_1 : (tensor<2x4x8x1xf32>, tensor<1x4x8x1xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x4x8x1xf32>
    return %1 : tensor<2x4x8x1xf32>
  }
  func.func private @dynamic_update_index_in_dim_9(%arg0: tensor<2x1x1x32xf32>, %arg1: tensor<1x1x32xf32>, %arg2: tensor<i32>) -> tensor<2x1x1x32xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2, 3] : (tensor<1x1x32xf32>) -> tensor<1x1x1x32xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0, %c_1 : (tensor<2x1x1x32xf32>, tensor<1x1x1x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x1x1x32xf32>
    return %1 : tensor<2x1x1x32xf32>
  }
  func.func private @dynamic_update_index_in_dim_10(%arg0: tensor<2x4x8x4x8xf32>, %arg1: tensor<4x8x4x8xf32>, %arg2: tensor<i32>) -> tensor<2x4x8x4x8xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2, 3, 4] : (tensor<4x8x4x8xf32>) -> tensor<1x4x8x4x8xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0, %c_1, %c_2 : (tensor<2x4x8x4x8xf32>, tensor<1x4x8x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x4x8x4x8xf32>
    return %1 : tensor<2x4x8x4x8xf32>
  }
  func.func private @dynamic_update_index_in_dim_11(%arg0: tensor<2x4x4x8x8xf32>, %arg1: tensor<4x4x8x8xf32>, %arg2: tensor<i32>) -> tensor<2x4x4x8x8xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2, 3, 4] : (tensor<4x4x8x8xf32>) -> tensor<1x4x4x8x8xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0, %c_1, %c_2 : (tensor<2x4x4x8x8xf32>, tensor<1x4x4x8x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x4x4x8x8xf32>
    return %1 : tensor<2x4x4x8x8xf32>
  }
  func.func private @dynamic_update_index_in_dim_12(%arg0: tensor<2x4x4x8x1xf32>, %arg1: tensor<4x4x8x1xf32>, %arg2: tensor<i32>) -> tensor<2x4x4x8x1xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2, 3, 4] : (tensor<4x4x8x1xf32>) -> tensor<1x4x4x8x1xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0, %c_1, %c_2 : (tensor<2x4x4x8x1xf32>, tensor<1x4x4x8x1xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x4x4x8x1xf32>
    return %1 : tensor<2x4x4x8x1xf32>
  }
  func.func private @dynamic_update_index_in_dim_13(%arg0: tensor<2x4x8x64xf32>, %arg1: tensor<4x8x64xf32>, %arg2: tensor<i32>) -> tensor<2x4x8x64xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2, 3] : (tensor<4x8x64xf32>) -> tensor<1x4x8x64xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0, %c_1 : (tensor<2x4x8x64xf32>, tensor<1x4x8x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x4x8x64xf32>
    return %1 : tensor<2x4x8x64xf32>
  }
  func.func private @log_softmax(%arg0: tensor<4x8x12xf32>) -> (tensor<4x8x12xf32>, tensor<4x8x12xf32>, tensor<4x8x1xf32>) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [2] : (tensor<4x8x12xf32>, tensor<f32>) -> tensor<4x8xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<4x8xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<4x8x1xf32>) -> tensor<4x8x12xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<4x8x12xf32>
    %6 = stablehlo.exponential %5 : tensor<4x8x12xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<4x8x12xf32>, tensor<f32>) -> tensor<4x8xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8x1xf32>
    %9 = stablehlo.log %8 : tensor<4x8x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<4x8x1xf32>) -> tensor<4x8x12xf32>
    %11 = stablehlo.subtract %5, %10 : tensor<4x8x12xf32>
    return %11, %6, %8 : tensor<4x8x12xf32>, tensor<4x8x12xf32>, tensor<4x8x1xf32>
  }
  func.func private @take_along_axis(%arg0: tensor<4x8x12xf32>, %arg1: tensor<4x8x1xi32>) -> (tensor<4x8x1xf32>, tensor<4x8x1x1xi32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<4x8x1xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<4x8x1xi32>, tensor<4x8x1xi32>) -> tensor<4x8x1xi1>
    %c_0 = stablehlo.constant dense<12> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<4x8x1xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<4x8x1xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<4x8x1xi1>, tensor<4x8x1xi32>
    %5 = stablehlo.reshape %4 : (tensor<4x8x1xi32>) -> tensor<4x8x1x1xi32>
    %c_1 = stablehlo.constant dense<11> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<4x8x1x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<4x8x1x1xi32>, tensor<4x8x1x1xi32>) -> tensor<4x8x1x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [3] : (tensor<1xi32>) -> tensor<1x1x1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2, 3] : (tensor<1x1x1x1xi32>) -> tensor<4x8x1x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<4x8x1x1xi32>, tensor<4x8x1x1xi32>) -> tensor<4x8x1x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<4x8x1x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [3] : (tensor<4x8x1x1xi1>, tensor<i1>) -> tensor<4x8x1xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [2], operand_batching_dims = [0, 1], start_indices_batching_dims = [0, 1], start_index_map = [2], index_vector_dim = 3>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 1>}> : (tensor<4x8x12xf32>, tensor<4x8x1x1xi32>) -> tensor<4x8x1xf32>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %15 = stablehlo.select %12, %13, %14 : tensor<4x8x1xi1>, tensor<4x8x1xf32>
    return %15, %5 : tensor<4x8x1xf32>, tensor<4x8x1x1xi32>
  }
  func.func private @take_along_axis_14(%arg0: tensor<4x8x1x1xi32>, %arg1: tensor<4x8x1xf32>) -> tensor<4x8x12xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x8x12xf32>
    %1 = "stablehlo.scatter"(%0, %arg0, %arg1) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [2], input_batching_dims = [0, 1], scatter_indices_batching_dims = [0, 1], scatter_dims_to_operand_dims = [2], index_vector_dim = 3>, unique_indices = false}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %2 = stablehlo.add %arg2, %arg3 : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<4x8x12xf32>, tensor<4x8x1x1xi32>, tensor<4x8x1xf32>) -> tensor<4x8x12xf32>
    return %1 : tensor<4x8x12xf32>
  }
  func.func private @log_softmax_15(%arg0: tensor<4x8x12xf32>, %arg1: tensor<4x8x1xf32>, %arg2: tensor<4x8x12xf32>) -> tensor<4x8x12xf32> {
    %0 = stablehlo.negate %arg2 : tensor<4x8x12xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4x8x12xf32>, tensor<f32>) -> tensor<4x8xf32>
    %2 = stablehlo.reshape %1 : (tensor<4x8xf32>) -> tensor<4x8x1xf32>
    %3 = stablehlo.divide %2, %arg1 : tensor<4x8x1xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [2] : (tensor<4x8x1xf32>, tensor<f32>) -> tensor<4x8xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8x12xf32>
    %6 = stablehlo.multiply %5, %arg0 : tensor<4x8x12xf32>
    %7 = stablehlo.add %arg2, %6 : tensor<4x8x12xf32>
    return %7 : tensor<4x8x12xf32>
  }
  func.func private @dynamic_index_in_dim_16(%arg0: tensor<2x4x8x32xf32>, %arg1: tensor<i32>) -> tensor<4x8x32xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, %c_1, sizes = [1, 4, 8, 32] : (tensor<2x4x8x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8x32xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x4x8x32xf32>) -> tensor<4x8x32xf32>
    return %1 : tensor<4x8x32xf32>
  }
  func.func private @dynamic_index_in_dim_17(%arg0: tensor<2x4x8x1xf32>, %arg1: tensor<i32>) -> tensor<4x8x1xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, %c_1, sizes = [1, 4, 8, 1] : (tensor<2x4x8x1xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8x1xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x4x8x1xf32>) -> tensor<4x8x1xf32>
    return %1 : tensor<4x8x1xf32>
  }
  func.func private @dynamic_index_in_dim_18(%arg0: tensor<2x1x1x32xf32>, %arg1: tensor<i32>) -> tensor<1x1x32xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, %c_1, sizes = [1, 1, 1, 32] : (tensor<2x1x1x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x1x32xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x1x1x32xf32>) -> tensor<1x1x32xf32>
    return %1 : tensor<1x1x32xf32>
  }
  func.func private @dynamic_index_in_dim_19(%arg0: tensor<2x4x8x4x8xf32>, %arg1: tensor<i32>) -> tensor<4x8x4x8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, %c_1, %c_2, sizes = [1, 4, 8, 4, 8] : (tensor<2x4x8x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8x4x8xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x4x8x4x8xf32>) -> tensor<4x8x4x8xf32>
    return %1 : tensor<4x8x4x8xf32>
  }
  func.func private @dynamic_index_in_dim_20(%arg0: tensor<2x4x4x8x8xf32>, %arg1: tensor<i32>) -> tensor<4x4x8x8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, %c_1, %c_2, sizes = [1, 4, 4, 8, 8] : (tensor<2x4x4x8x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4x8x8xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x4x4x8x8xf32>) -> tensor<4x4x8x8xf32>
    return %1 : tensor<4x4x8x8xf32>
  }
  func.func private @dynamic_index_in_dim_21(%arg0: tensor<2x4x4x8x1xf32>, %arg1: tensor<i32>) -> tensor<4x4x8x1xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, %c_1, %c_2, sizes = [1, 4, 4, 8, 1] : (tensor<2x4x4x8x1xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4x8x1xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x4x4x8x1xf32>) -> tensor<4x4x8x1xf32>
    return %1 : tensor<4x4x8x1xf32>
  }
  func.func private @dynamic_index_in_dim_22(%arg0: tensor<2x4x8x64xf32>, %arg1: tensor<i32>) -> tensor<4x8x64xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, %c_1, sizes = [1, 4, 8, 64] : (tensor<2x4x8x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8x64xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x4x8x64xf32>) -> tensor<4x8x64xf32>
    return %1 : tensor<4x8x64xf32>
  }
  func.func private @closed_call_23(%arg0: tensor<f32>, %arg1: tensor<i1>, %arg2: tensor<4x8x1xf32>, %arg3: tensor<4x4x8x8xi1>, %arg4: tensor<4x4x8x8xf32>, %arg5: tensor<f32>, %arg6: tensor<i1>, %arg7: tensor<4x8x1xf32>, %arg8: tensor<4x8x32xf32>, %arg9: tensor<4x8x32xf32>, %arg10: tensor<4x8x1xf32>, %arg11: tensor<4x8x1xf32>, %arg12: tensor<4x8x32xf32>, %arg13: tensor<1x1x32xf32>, %arg14: tensor<4x8x32xf32>, %arg15: tensor<32x32xf32>, %arg16: tensor<4x8x32xf32>, %arg17: tensor<32x32xf32>, %arg18: tensor<32x32xf32>, %arg19: tensor<4x8x4x8xf32>, %arg20: tensor<4x8x4x8xf32>, %arg21: tensor<4x4x8x8xf32>, %arg22: tensor<4x4x8x1xf32>, %arg23: tensor<4x4x8x1xf32>, %arg24: tensor<4x4x8x8xf32>, %arg25: tensor<4x8x4x8xf32>, %arg26: tensor<32x32xf32>, %arg27: tensor<4x8x32xf32>, %arg28: tensor<4x8x32xf32>, %arg29: tensor<4x8x1xf32>, %arg30: tensor<4x8x1xf32>, %arg31: tensor<4x8x32xf32>, %arg32: tensor<1x1x32xf32>, %arg33: tensor<4x8x32xf32>, %arg34: tensor<32x64xf32>, %arg35: tensor<4x8x32xf32>, %arg36: tensor<4x8x64xf32>, %arg37: tensor<4x8x64xf32>, %arg38: tensor<4x8x64xf32>, %arg39: tensor<64x32xf32>, %arg40: tensor<4x8x64xf32>) -> (tensor<4x8x32xf32>, tensor<32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32xf32>, tensor<32x64xf32>, tensor<64x32xf32>) {
    %0 = stablehlo.dot_general %arg8, %arg40, contracting_dims = [0, 1] x [0, 1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<4x8x64xf32>) -> tensor<32x64xf32>
    %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<32x64xf32>) -> tensor<64x32xf32>
    %2 = stablehlo.dot_general %arg8, %arg39, contracting_dims = [2] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<64x32xf32>) -> tensor<4x8x64xf32>
    %3 = call @silu_24(%arg36, %arg37, %arg38, %2) : (tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>) -> tensor<4x8x64xf32>
    %4 = stablehlo.dot_general %3, %arg35, contracting_dims = [0, 1] x [0, 1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x64xf32>, tensor<4x8x32xf32>) -> tensor<64x32xf32>
    %5 = stablehlo.transpose %4, dims = [1, 0] : (tensor<64x32xf32>) -> tensor<32x64xf32>
    %6 = stablehlo.dot_general %3, %arg34, contracting_dims = [2] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x64xf32>, tensor<32x64xf32>) -> tensor<4x8x32xf32>
    %7 = stablehlo.multiply %arg33, %6 : tensor<4x8x32xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %8 = stablehlo.reduce(%7 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x8x32xf32>, tensor<f32>) -> tensor<32xf32>
    %9 = stablehlo.reshape %8 : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %10 = stablehlo.broadcast_in_dim %arg32, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<4x8x32xf32>
    %11 = stablehlo.multiply %6, %10 : tensor<4x8x32xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %12 = stablehlo.reduce(%9 init: %cst_0) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x32xf32>, tensor<f32>) -> tensor<32xf32>
    %13 = stablehlo.multiply %arg31, %11 : tensor<4x8x32xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %14 = stablehlo.reduce(%13 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<4x8x32xf32>, tensor<f32>) -> tensor<4x8xf32>
    %15 = stablehlo.reshape %14 : (tensor<4x8xf32>) -> tensor<4x8x1xf32>
    %16 = stablehlo.broadcast_in_dim %arg30, dims = [0, 1, 2] : (tensor<4x8x1xf32>) -> tensor<4x8x32xf32>
    %17 = stablehlo.multiply %11, %16 : tensor<4x8x32xf32>
    %18 = stablehlo.multiply %15, %arg29 : tensor<4x8x1xf32>
    %19 = call @_var_25(%arg28, %arg5, %arg6, %arg7, %18) : (tensor<4x8x32xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<4x8x1xf32>) -> tensor<4x8x32xf32>
    %20 = stablehlo.add %arg8, %19 : tensor<4x8x32xf32>
    %21 = stablehlo.negate %17 : tensor<4x8x32xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %22 = stablehlo.reduce(%21 init: %cst_2) applies stablehlo.add across dimensions = [2] : (tensor<4x8x32xf32>, tensor<f32>) -> tensor<4x8xf32>
    %23 = stablehlo.reshape %22 : (tensor<4x8xf32>) -> tensor<4x8x1xf32>
    %24 = stablehlo.add %20, %17 : tensor<4x8x32xf32>
    %cst_3 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %25 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %26 = stablehlo.divide %23, %25 : tensor<4x8x1xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %27 = stablehlo.reduce(%26 init: %cst_4) applies stablehlo.add across dimensions = [2] : (tensor<4x8x1xf32>, tensor<f32>) -> tensor<4x8xf32>
    %28 = stablehlo.broadcast_in_dim %27, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8x32xf32>
    %29 = stablehlo.add %24, %28 : tensor<4x8x32xf32>
    %30 = stablehlo.dot_general %29, %arg27, contracting_dims = [0, 1] x [0, 1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<4x8x32xf32>) -> tensor<32x32xf32>
    %31 = stablehlo.transpose %30, dims = [1, 0] : (tensor<32x32xf32>) -> tensor<32x32xf32>
    %32 = stablehlo.dot_general %29, %arg26, contracting_dims = [2] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<32x32xf32>) -> tensor<4x8x32xf32>
    %33 = stablehlo.reshape %32 : (tensor<4x8x32xf32>) -> tensor<4x8x4x8xf32>
    %34 = stablehlo.transpose %33, dims = [0, 2, 3, 1] : (tensor<4x8x4x8xf32>) -> tensor<4x4x8x8xf32>
    %35 = stablehlo.dot_general %34, %arg25, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [HIGHEST, HIGHEST] : (tensor<4x4x8x8xf32>, tensor<4x8x4x8xf32>) -> tensor<4x4x8x8xf32>
    %36 = stablehlo.dot_general %34, %arg24, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [HIGHEST, HIGHEST] : (tensor<4x4x8x8xf32>, tensor<4x4x8x8xf32>) -> tensor<4x4x8x8xf32>
    %37 = stablehlo.transpose %36, dims = [0, 3, 1, 2] : (tensor<4x4x8x8xf32>) -> tensor<4x8x4x8xf32>
    %38 = stablehlo.broadcast_in_dim %arg23, dims = [0, 1, 2, 3] : (tensor<4x4x8x1xf32>) -> tensor<4x4x8x8xf32>
    %39 = stablehlo.multiply %35, %38 : tensor<4x4x8x8xf32>
    %40 = stablehlo.multiply %39, %arg21 : tensor<4x4x8x8xf32>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %41 = stablehlo.reduce(%40 init: %cst_5) applies stablehlo.add across dimensions = [3] : (tensor<4x4x8x8xf32>, tensor<f32>) -> tensor<4x4x8xf32>
    %42 = stablehlo.reshape %41 : (tensor<4x4x8xf32>) -> tensor<4x4x8x1xf32>
    %43 = stablehlo.negate %42 : tensor<4x4x8x1xf32>
    %44 = stablehlo.broadcast_in_dim %arg22, dims = [0, 1, 2, 3] : (tensor<4x4x8x1xf32>) -> tensor<4x4x8x8xf32>
    %45 = stablehlo.divide %35, %44 : tensor<4x4x8x8xf32>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %46 = stablehlo.reduce(%43 init: %cst_6) applies stablehlo.add across dimensions = [3] : (tensor<4x4x8x1xf32>, tensor<f32>) -> tensor<4x4x8xf32>
    %47 = stablehlo.broadcast_in_dim %46, dims = [0, 1, 2] : (tensor<4x4x8xf32>) -> tensor<4x4x8x8xf32>
    %48 = stablehlo.add %45, %47 : tensor<4x4x8x8xf32>
    %49 = stablehlo.multiply %48, %arg21 : tensor<4x4x8x8xf32>
    %50 = call @_where_27(%arg3, %arg4, %49) : (tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>, tensor<4x4x8x8xf32>) -> tensor<4x4x8x8xf32>
    %cst_7 = stablehlo.constant dense<2.82842708> : tensor<f32>
    %51 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<4x4x8x8xf32>
    %52 = stablehlo.divide %50, %51 : tensor<4x4x8x8xf32>
    %53 = stablehlo.dot_general %52, %arg20, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x4x8x8xf32>, tensor<4x8x4x8xf32>) -> tensor<4x4x8x8xf32>
    %54 = stablehlo.transpose %53, dims = [0, 2, 1, 3] : (tensor<4x4x8x8xf32>) -> tensor<4x8x4x8xf32>
    %55 = stablehlo.dot_general %52, %arg19, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x4x8x8xf32>, tensor<4x8x4x8xf32>) -> tensor<4x4x8x8xf32>
    %56 = stablehlo.transpose %55, dims = [0, 2, 1, 3] : (tensor<4x4x8x8xf32>) -> tensor<4x8x4x8xf32>
    %57 = stablehlo.reshape %37 : (tensor<4x8x4x8xf32>) -> tensor<4x8x32xf32>
    %58 = stablehlo.dot_general %57, %arg16, contracting_dims = [0, 1] x [0, 1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<4x8x32xf32>) -> tensor<32x32xf32>
    %59 = stablehlo.transpose %58, dims = [1, 0] : (tensor<32x32xf32>) -> tensor<32x32xf32>
    %60 = stablehlo.dot_general %57, %arg18, contracting_dims = [2] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<32x32xf32>) -> tensor<4x8x32xf32>
    %61 = stablehlo.reshape %54 : (tensor<4x8x4x8xf32>) -> tensor<4x8x32xf32>
    %62 = stablehlo.dot_general %61, %arg16, contracting_dims = [0, 1] x [0, 1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<4x8x32xf32>) -> tensor<32x32xf32>
    %63 = stablehlo.transpose %62, dims = [1, 0] : (tensor<32x32xf32>) -> tensor<32x32xf32>
    %64 = stablehlo.dot_general %61, %arg17, contracting_dims = [2] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<32x32xf32>) -> tensor<4x8x32xf32>
    %65 = stablehlo.add %60, %64 : tensor<4x8x32xf32>
    %66 = stablehlo.reshape %56 : (tensor<4x8x4x8xf32>) -> tensor<4x8x32xf32>
    %67 = stablehlo.dot_general %66, %arg16, contracting_dims = [0, 1] x [0, 1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<4x8x32xf32>) -> tensor<32x32xf32>
    %68 = stablehlo.transpose %67, dims = [1, 0] : (tensor<32x32xf32>) -> tensor<32x32xf32>
    %69 = stablehlo.dot_general %66, %arg15, contracting_dims = [2] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x8x32xf32>, tensor<32x32xf32>) -> tensor<4x8x32xf32>
    %70 = stablehlo.add %65, %69 : tensor<4x8x32xf32>
    %71 = stablehlo.multiply %arg14, %70 : tensor<4x8x32xf32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %72 = stablehlo.reduce(%71 init: %cst_8) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x8x32xf32>, tensor<f32>) -> tensor<32xf32>
    %73 = stablehlo.reshape %72 : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %74 = stablehlo.broadcast_in_dim %arg13, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<4x8x32xf32>
    %75 = stablehlo.multiply %70, %74 : tensor<4x8x32xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %76 = stablehlo.reduce(%73 init: %cst_9) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x32xf32>, tensor<f32>) -> tensor<32xf32>
    %77 = stablehlo.multiply %arg12, %75 : tensor<4x8x32xf32>
    %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %78 = stablehlo.reduce(%77 init: %cst_10) applies stablehlo.add across dimensions = [2] : (tensor<4x8x32xf32>, tensor<f32>) -> tensor<4x8xf32>
    %79 = stablehlo.reshape %78 : (tensor<4x8xf32>) -> tensor<4x8x1xf32>
    %80 = stablehlo.broadcast_in_dim %arg11, dims = [0, 1, 2] : (tensor<4x8x1xf32>) -> tensor<4x8x32xf32>
    %81 = stablehlo.multiply %75, %80 : tensor<4x8x32xf32>
    %82 = stablehlo.multiply %79, %arg10 : tensor<4x8x1xf32>
    %83 = call @_var_25(%arg9, %arg0, %arg1, %arg2, %82) : (tensor<4x8x32xf32>, tensor<f32>, tensor<i1>, tensor<4x8x1xf32>, tensor<4x8x1xf32>) -> tensor<4x8x32xf32>
    %84 = stablehlo.add %29, %83 : tensor<4x8x32xf32>
    %85 = stablehlo.negate %81 : tensor<4x8x32xf32>
    %cst_11 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %86 = stablehlo.reduce(%85 init: %cst_11) applies stablehlo.add across dimensions = [2] : (tensor<4x8x32xf32>, tensor<f32>) -> tensor<4x8xf32>
    %87 = stablehlo.reshape %86 : (tensor<4x8xf32>) -> tensor<4x8x1xf32>
    %88 = stablehlo.add %84, %81 : tensor<4x8x32xf32>
    %cst_12 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %89 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %90 = stablehlo.divide %87, %89 : tensor<4x8x1xf32>
    %cst_13 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %91 = stablehlo.reduce(%90 init: %cst_13) applies stablehlo.add across dimensions = [2] : (tensor<4x8x1xf32>, tensor<f32>) -> tensor<4x8xf32>
    %92 = stablehlo.broadcast_in_dim %91, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8x32xf32>
    %93 = stablehlo.add %88, %92 : tensor<4x8x32xf32>
    return %93, %76, %68, %63, %59, %31, %12, %5, %1 : tensor<4x8x32xf32>, tensor<32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32xf32>, tensor<32x64xf32>, tensor<64x32xf32>
  }
  func.func private @silu_24(%arg0: tensor<4x8x64xf32>, %arg1: tensor<4x8x64xf32>, %arg2: tensor<4x8x64xf32>, %arg3: tensor<4x8x64xf32>) -> tensor<4x8x64xf32> {
    %0 = stablehlo.multiply %arg2, %arg3 : tensor<4x8x64xf32>
    %1 = stablehlo.multiply %arg3, %arg1 : tensor<4x8x64xf32>
    %2 = stablehlo.multiply %0, %arg0 : tensor<4x8x64xf32>
    %3 = stablehlo.add %1, %2 : tensor<4x8x64xf32>
    return %3 : tensor<4x8x64xf32>
  }
  func.func private @_var_25(%arg0: tensor<4x8x32xf32>, %arg1: tensor<f32>, %arg2: tensor<i1>, %arg3: tensor<4x8x1xf32>, %arg4: tensor<4x8x1xf32>) -> tensor<4x8x32xf32> {
    %0 = call @_where_26(%arg2, %arg3, %arg4) : (tensor<i1>, tensor<4x8x1xf32>, tensor<4x8x1xf32>) -> tensor<4x8x1xf32>
    %1 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %2 = stablehlo.divide %0, %1 : tensor<4x8x1xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %3 = stablehlo.reduce(%2 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4x8x1xf32>, tensor<f32>) -> tensor<4x8xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8x32xf32>
    %5 = stablehlo.multiply %4, %arg0 : tensor<4x8x32xf32>
    %6 = stablehlo.negate %5 : tensor<4x8x32xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_0) applies stablehlo.add across dimensions = [2] : (tensor<4x8x32xf32>, tensor<f32>) -> tensor<4x8xf32>
    %8 = stablehlo.reshape %7 : (tensor<4x8xf32>) -> tensor<4x8x1xf32>
    %cst_1 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %10 = stablehlo.divide %8, %9 : tensor<4x8x1xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%10 init: %cst_2) applies stablehlo.add across dimensions = [2] : (tensor<4x8x1xf32>, tensor<f32>) -> tensor<4x8xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8x32xf32>
    %13 = stablehlo.add %5, %12 : tensor<4x8x32xf32>
    return %13 : tensor<4x8x32xf32>
  }
  func.func private @_where_26(%arg0: tensor<i1>, %arg1: tensor<4x8x1xf32>, %arg2: tensor<4x8x1xf32>) -> tensor<4x8x1xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x8x1xf32>
    %1 = stablehlo.select %arg0, %arg2, %0 : tensor<i1>, tensor<4x8x1xf32>
    return %1 : tensor<4x8x1xf32>
  }
  func.func private @_where_27(%arg0: tensor<4x4x8x8xi1>, %arg1: tensor<4x4x8x8xf32>, %arg2: tensor<4x4x8x8xf32>) -> tensor<4x4x8x8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x4x8x8xf32>
    %1 = stablehlo.select %arg0, %arg2, %0 : tensor<4x4x8x8xi1>, tensor<4x4x8x8xf32>
    return %1 : tensor<4x4x8x8xf32>
  }
  func.func private @dynamic_update_index_in_dim_28(%arg0: tensor<2x32xf32>, %arg1: tensor<32xf32>, %arg2: tensor<i32>) -> tensor<2x32xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<32xf32>) -> tensor<1x32xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c : (tensor<2x32xf32>, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> tensor<2x32xf32>
    return %1 : tensor<2x32xf32>
  }
  func.func private @dynamic_update_index_in_dim_29(%arg0: tensor<2x32x32xf32>, %arg1: tensor<32x32xf32>, %arg2: tensor<i32>) -> tensor<2x32x32xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<32x32xf32>) -> tensor<1x32x32xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0 : (tensor<2x32x32xf32>, tensor<1x32x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x32x32xf32>
    return %1 : tensor<2x32x32xf32>
  }
  func.func private @dynamic_update_index_in_dim_30(%arg0: tensor<2x32x64xf32>, %arg1: tensor<32x64xf32>, %arg2: tensor<i32>) -> tensor<2x32x64xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<32x64xf32>) -> tensor<1x32x64xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0 : (tensor<2x32x64xf32>, tensor<1x32x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x32x64xf32>
    return %1 : tensor<2x32x64xf32>
  }
  func.func private @dynamic_update_index_in_dim_31(%arg0: tensor<2x64x32xf32>, %arg1: tensor<64x32xf32>, %arg2: tensor<i32>) -> tensor<2x64x32xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<64x32xf32>) -> tensor<1x64x32xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0 : (tensor<2x64x32xf32>, tensor<1x64x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x64x32xf32>
    return %1 : tensor<2x64x32xf32>
  }
}
